"""The cases of collectives: which there are, and what numpy says that each rank must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xpulab.chapters.collectives import collective_cases as cc
from xpulab.chapters.collectives.collective_calls import outcome_of_nothing

SUM = cc.Call("all_reduce", "call", "float32", (0, 1, 2), op="SUM")


def test_what_a_device_is_declared_to_lack_is_in_no_case():
    assert "reduce_scatter" not in {case.kind for case in cc.reductions(4, "cpu").cases("quick", 0)}
    scattered = {
        case.group is None for case in cc.moves(4, "gpu").cases("quick", 0) if (case.kind, case.form) == ("scatter", "object")
    }
    assert scattered == {True}


def test_a_maximum_keeps_nan_except_where_the_library_defines_it_otherwise():
    call = replace(SUM, op="MAX", values="nan")
    assert np.isnan(cc.held(call, 0, "xpu")).any()
    assert not np.isnan(cc.held(call, 0, "gpu")).any()


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_an_error_without_elements_that_nothing_declares_is_red_and_shows_its_entry(device):
    shown = outcome_of_nothing("reduce", device, f"{cc.REFUSAL}RuntimeError: not supported", "right")
    assert "not supported" in shown and "form: no elements" in shown and f"devices: [{device}]" in shown


def test_a_declared_error_without_elements_counts_as_nothing_but_the_next_sum_still_counts():
    error = f"{cc.REFUSAL}RuntimeError: not supported"
    assert outcome_of_nothing("reduce", "cpu", error, "right") == "nothing, the next sum is right"
    assert outcome_of_nothing("reduce", "cpu", error, "wrong") == "nothing, the next sum is wrong"
