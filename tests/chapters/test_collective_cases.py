"""The cases of collectives: which there are, and what numpy says that each rank must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from xpulab.chapters.collectives import collective_cases as cc

SUM = cc.Call("all_reduce", "call", "float32", (0, 1, 2), op="SUM")


def test_what_a_device_is_declared_to_lack_is_in_no_case():
    assert "reduce_scatter" not in {case.kind for case in cc.reductions(4, "cpu").cases("quick", 0)}
    on_xpu = [each(4, "xpu").cases("quick", 0) for each in (cc.reductions, cc.moves, cc.exchanges)]
    assert "int8" not in {case.dtype for cases in on_xpu for case in cases}
    assert "PROD" not in {case.op for case in on_xpu[0]} and "gather" not in {case.kind for case in on_xpu[1]}


def test_a_maximum_keeps_nan_except_where_the_library_defines_it_otherwise():
    call = replace(SUM, op="MAX", values="nan")
    assert np.isnan(cc.held(call, 0, "xpu")).any()
    assert not np.isnan(cc.held(call, 0, "gpu")).any()
