"""The cases of collectives: which there are, and what numpy says that each rank must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xpulab.chapters.collectives import collective_cases as cc
from xpulab.chapters.collectives.collective_calls import outcome_of_nothing
from xpulab.checks.table import Table

SUM = cc.Case("all_reduce", "call", "SUM", "float32", 7, "mixed", (0, 1, 2), -1, "own", True)


@pytest.fixture(scope="module")
def quick():
    return cc.make(4, "sim", "quick", 0)


def outcome_of(cases, answers, device="sim"):
    rows = Table("collectives.values")
    cc.compare(rows, cases[0].table, device, cases, answers)
    return rows.record("", 0.0)


def right(cases, device="sim"):
    return {case.name: cc.expected(case, device) for case in cases}


# ------------------------------------------------------------------------------------------------------------- the cases


@pytest.mark.parametrize("kind", cc.REDUCING)
def test_every_size_meets_every_reduction_of_a_collective(quick, kind):
    met = {(case.op, case.size) for case in quick if case.kind == kind and case.table == "values"}
    assert {(op, size) for op in cc.OPS for size in cc.SIZES} <= met


@pytest.mark.parametrize("kind", cc.ROOTED)
def test_every_rank_is_root_at_every_size(quick, kind):
    met = {(case.root, case.size) for case in quick if case.table == "values"}
    assert met >= {(root, size) for root in range(4) for size in cc.SIZES}
    assert {case.root for case in quick if case.kind == kind} == {0, 1, 2, 3}


def test_every_type_meets_every_collective(quick):
    met = {(case.kind, case.dtype) for case in quick}
    assert {(kind, dtype) for kind in cc.FORMS if kind != "all_to_all" for dtype in cc.TYPES} <= met


def test_standard_has_every_combination_once():
    cases = cc.make(2, "sim", "standard", 0)
    chosen = [(c.kind, c.op, c.dtype, c.size, c.values, c.members, c.root, c.everyone) for c in cases]
    assert len(set(chosen)) == len(chosen)
    reduces = {(c.op, c.dtype, c.size, c.values, c.root) for c in cases if c.kind == "reduce" and c.everyone}
    for op, size, sign, root in [
        (op, size, sign, r) for op in cc.OPS for size in cc.SIZES for sign in cc.SIGNS for r in (0, 1)
    ]:
        assert (op, "bfloat16", size, sign, root) in reduces


def test_eight_cards_have_halves_and_crossing_quads():
    found = cc.groups(8, "xpu", "quick")
    assert {(0, 1, 2, 3), (4, 5, 6, 7), (0, 1, 4, 5), (1, 3, 5, 7), (0, 2, 4, 6), (1, 2, 3, 4, 5, 6, 7)} <= set(found)


def test_what_a_backend_lacks_is_not_called():
    assert not {"reduce_scatter", "all_to_all"} & {case.kind for case in cc.make(4, "cpu", "quick", 0)}


# ---------------------------------------------------------------------------------------------------- what numpy says


def test_sums_are_exact_in_every_type():
    for case in cc.make(6, "gpu", "quick", 0):
        if case.kind == "all_reduce" and case.values not in cc.NONFINITE and case.size < 1025:
            total = cc.held(case, case.members[0], "gpu")
            digits = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}.get(case.dtype)
            limit = 2.0**digits if digits else np.iinfo(case.dtype).max
            assert np.abs(total).max() <= limit and (total == np.round(total)).all(), case.name


def test_a_maximum_keeps_nan_except_where_the_library_defines_it_otherwise():
    case = replace(SUM, op="MAX", values="nan")
    assert np.isnan(cc.held(case, 0, "xpu")).any()
    assert not np.isnan(cc.held(case, 0, "gpu")).any()


def test_a_digest_has_one_form_of_nan_and_of_zero():
    one, other = np.array([0.0, np.nan]), np.array([-0.0, -np.nan])
    assert cc.digest(one) == cc.digest(other) != cc.digest(np.array([0.0, 1.0]))


# --------------------------------------------------------------------------------------------------------- comparison


@pytest.mark.parametrize("device", ["cpu", "gpu", "xpu", "sim"])
def test_an_error_that_nothing_declares_is_red_whatever_its_words_and_shows_the_entry_that_would_declare_it(device):
    case = replace(SUM, dtype="int8")
    answers = {case.name: [f"{cc.REFUSAL}RuntimeError: BKCL does not support INT8"] * 3}
    record = outcome_of([case], answers, device)
    row = next(row for row in record.rows if row.case == case.row)
    assert row.outcome == "failed"
    assert (
        f"devices: [{device}]" in str(cc.undeclared(answers[case.name][0], case, device))
        and "does not support INT8" in row.reason
    )


@pytest.mark.parametrize("device", ["gpu", "xpu"])
def test_an_error_without_elements_that_nothing_declares_is_red_and_shows_its_entry(device):
    shown = outcome_of_nothing("reduce", device, f"{cc.REFUSAL}RuntimeError: not supported", "right")
    assert "not supported" in shown and "form: no elements" in shown and f"devices: [{device}]" in shown


def test_a_declared_error_without_elements_counts_as_nothing_but_the_next_sum_still_counts():
    error = f"{cc.REFUSAL}RuntimeError: not supported"
    assert outcome_of_nothing("reduce", "cpu", error, "right") == "nothing, the next sum is right"
    assert outcome_of_nothing("reduce", "cpu", error, "wrong") == "nothing, the next sum is wrong"


def test_the_trial_across_nodes_takes_no_word_for_a_missing_kernel():
    case = replace(SUM, dtype="bfloat16")
    shown = cc.undeclared(f"{cc.REFUSAL}RuntimeError: type not supported", case, "xpu")
    assert shown.endswith("source: WHO SAYS SO}") and "call: all_reduce" in shown
    assert cc.declared(case, "xpu") is None and cc.declared(replace(case, kind="reduce_scatter"), "cpu") is not None


def test_objects_are_not_scattered_in_a_group():
    for device in ("cpu", "sim", "gpu", "xpu"):
        made = cc.make(4, device, "quick", 0)
        assert not any((case.kind, case.form, case.everyone) == ("scatter", "object", False) for case in made)
        assert any((case.kind, case.form, case.everyone) == ("scatter", "object", True) for case in made)
