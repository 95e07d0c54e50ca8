"""The cases of collectives: which there are, and what numpy says that each rank must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xpulab.chapters.collectives import collective_cases as cc
from xpulab.chapters.collectives.collective_calls import outcome_of_nothing

SUM = cc.Call("all_reduce", "call", "float32", (0, 1, 2), op="SUM")


def test_eight_cards_have_halves_and_crossing_quads():
    found = set(cc.groups(8, "xpu").values())
    assert {(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 4, 5), (1, 3, 5, 7), (0, 2, 4, 6), (1, 2, 3, 4, 5, 6, 7)} <= found


def test_what_a_device_is_declared_to_lack_is_in_no_case():
    assert "reduce_scatter" not in {case.kind for case in cc.reductions(4, "cpu").cases("quick", 0)}
    scattered = {
        case.group is None for case in cc.moves(4, "gpu").cases("quick", 0) if (case.kind, case.form) == ("scatter", "object")
    }
    assert scattered == {True}


@pytest.mark.parametrize("n", [2, 4, 6, 8])
def test_sums_are_exact_in_every_type(n):
    for case in cc.reductions(n, "gpu").cases("quick", 0):
        if case.values not in cc.NONFINITE and case.shape != (65537,):
            call = cc.call_of(case, n)
            total = cc.held(call, call.root if call.kind == "reduce" else call.members[0], "gpu")
            assert np.abs(total).max() <= cc.EXACT[call.dtype] and (total == np.round(total)).all(), call.name


def test_a_maximum_keeps_nan_except_where_the_library_defines_it_otherwise():
    call = replace(SUM, op="MAX", values="nan")
    assert np.isnan(cc.held(call, 0, "xpu")).any()
    assert not np.isnan(cc.held(call, 0, "gpu")).any()


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_an_error_that_nothing_declares_is_shown_with_the_entry_that_would_declare_it(device):
    shown = cc.undeclared(f"{cc.REFUSAL}RuntimeError: type not supported", replace(SUM, dtype="bfloat16"), device)
    assert "not supported" in shown and "call: all_reduce" in shown and f"devices: [{device}]" in shown


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_an_error_without_elements_that_nothing_declares_is_red_and_shows_its_entry(device):
    shown = outcome_of_nothing("reduce", device, f"{cc.REFUSAL}RuntimeError: not supported", "right")
    assert "not supported" in shown and "form: no elements" in shown and f"devices: [{device}]" in shown


def test_a_declared_error_without_elements_counts_as_nothing_but_the_next_sum_still_counts():
    error = f"{cc.REFUSAL}RuntimeError: not supported"
    assert outcome_of_nothing("reduce", "cpu", error, "right") == "nothing, the next sum is right"
    assert outcome_of_nothing("reduce", "cpu", error, "wrong") == "nothing, the next sum is wrong"
