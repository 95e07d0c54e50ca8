"""The record that passes from a kernel to the outside, and the rules that both sides use."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from xpulab.records.record import (
    OUTCOMES,
    CardFacts,
    Record,
    Row,
    RunContext,
    is_green,
    reconcile,
    record_in,
    run_context_in,
)

WORST_FIRST = ("broken", "failed", "missing", "predicted", "refuted", "fixed", "known", "passed", "skipped")
ROWS = (
    Row("float16", "failed", 0.5, "< 0.1", "rejected", "0.5 is not < 0.1"),
    Row("float32", "passed", "3 of 3", "equal", "rejected"),
)
FULL = Record("sft.loss", "failed", "the loss falls", 0.25, "< 0.1", "rejected", 1.5, "it rose", ROWS)


def a_record(outcome, name="a.b"):
    return Record(name, outcome, "it holds")


def through_json(metadata):
    return json.loads(json.dumps(metadata, allow_nan=False))


@pytest.mark.parametrize("record", [FULL, a_record("passed")], ids=["full", "bare"])
def test_a_record_is_the_same_after_json(record):
    assert record_in(through_json(record.to_metadata())) == record


def test_a_run_context_is_the_same_after_json():
    run_context = RunContext("xpu", 8, {"cores": 64}, {"numpy": "1.26.4"}, (CardFacts(0, "P800 OAM", power_w=88.0),))
    assert run_context_in(through_json(run_context.to_metadata())) == run_context


# -------------------------------------------------------------------------------------------------------------- reconcile


@pytest.mark.parametrize(
    ("planned", "seen", "reconciled"),
    [
        ([], {}, {}),
        (["a.one", "a.two"], {"a.two": "passed", "a.one": "failed"}, {"a.one": "failed", "a.two": "passed"}),
        (["a.one"], {}, {"a.one": "missing"}),
        (["a.1", "a.2", "a.3"], {"a.3": "passed", "a.1": "passed"}, {"a.1": "passed", "a.2": "missing", "a.3": "passed"}),
        (["a.two"], {"a.one": "passed", "a.two": "passed"}, {"a.two": "passed", "a.one": "broken"}),
    ],
    ids=["nothing", "another order", "a missing one", "a missing one between others", "one that was not planned"],
)
def test_records_are_in_planned_order_with_the_missing_ones_and_then_the_unplanned(planned, seen, reconciled):
    found = reconcile(planned, [a_record(outcome, name) for name, outcome in seen.items()])
    assert [(record.name, record.outcome) for record in found] == list(reconciled.items())


def test_an_unplanned_record_is_broken_whatever_its_outcome_keeps_its_rows_and_says_how_to_plan_it():
    for outcome in OUTCOMES:
        (record,) = reconcile([], [replace(FULL, outcome=outcome)])
        assert record == replace(FULL, outcome="broken", reason=record.reason), outcome
        assert "literal" in record.reason


def test_of_two_records_of_one_name_the_worse_counts():
    for worse_one, better_one in itertools.combinations_with_replacement(WORST_FIRST, 2):
        for outcomes in ((worse_one, better_one), (better_one, worse_one)):
            (record,) = reconcile(["a.b"], [a_record(outcome) for outcome in outcomes])
            assert record.outcome == worse_one, outcomes


# ------------------------------------------------------------------------------------------------------ green and worst


GREEN = ("passed", "known", "fixed", "predicted", "refuted", "passed skipped", "passed known fixed predicted skipped")
NOT_GREEN = (
    *("", "skipped", "skipped skipped", "missing", "failed", "broken", "passed failed", "passed broken", "passed missing"),
    *("passed passed passed missing", "known failed", "fixed broken", "passed pased", "PASSED"),
)


@pytest.mark.parametrize("outcomes", [*GREEN, *NOT_GREEN])
def test_green_needs_a_comparison_and_no_red_check(outcomes):
    assert is_green([a_record(outcome) for outcome in outcomes.split()]) is (outcomes in GREEN)
