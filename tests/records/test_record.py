"""The record that passes from a kernel to the outside, and the rules that both sides use."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from xpulab.records.record import (
    METADATA_KEY,
    OUTCOMES,
    CardFacts,
    Record,
    Row,
    RunContext,
    is_compared,
    is_green,
    reconcile,
    record_in,
    run_context_in,
    worse,
    worst,
)

WORST_FIRST = ("broken", "failed", "missing", "fixed", "known", "passed", "skipped")
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


def test_an_output_may_have_other_metadata_besides_the_record():
    assert record_in({**through_json(FULL.to_metadata()), "tags": ["x"]}) == FULL


@pytest.mark.parametrize("metadata", [{}, {"tags": []}, {METADATA_KEY: {}}, {METADATA_KEY: {"run_context": {}}}])
def test_an_output_without_a_record_has_none(metadata):
    assert record_in(metadata) is None


def test_a_run_context_is_the_same_after_json():
    run_context = RunContext("xpu", 8, {"cores": 64}, {"numpy": "1.26.4"}, (CardFacts(0, "P800 OAM", power_w=88.0),))
    assert run_context_in(through_json(run_context.to_metadata())) == run_context


def test_an_output_with_a_record_has_no_run_context():
    assert run_context_in(FULL.to_metadata()) is None


@pytest.mark.parametrize(("name", "capability"), [("sft.loss", "sft"), ("device-proof.a.b", "device-proof")])
def test_the_capability_is_the_name_up_to_the_first_dot(name, capability):
    assert a_record("passed", name).capability == capability


# -------------------------------------------------------------------------------------------------------------- reconcile


def test_records_are_in_planned_order():
    seen = [a_record("passed", "a.two"), a_record("failed", "a.one")]
    assert reconcile(["a.one", "a.two"], seen) == (seen[1], seen[0])


def test_a_planned_check_without_a_record_is_missing():
    (record,) = reconcile(["a.b"], [])
    assert (record.name, record.outcome) == ("a.b", "missing")


def test_a_missing_check_is_at_its_planned_position():
    reconciled = reconcile(["a.one", "a.two", "a.three"], [a_record("passed", "a.three"), a_record("passed", "a.one")])
    assert [record.outcome for record in reconciled] == ["passed", "missing", "passed"]


def test_an_unplanned_record_is_broken_for_every_outcome():
    for outcome in OUTCOMES:
        (record,) = reconcile([], [a_record(outcome)])
        assert record.outcome == "broken", outcome


def test_unplanned_records_are_last():
    reconciled = reconcile(["a.two"], [a_record("passed", "a.one"), a_record("passed", "a.two")])
    assert [record.name for record in reconciled] == ["a.two", "a.one"]


def test_an_unplanned_record_keeps_its_rows_and_values():
    (record,) = reconcile([], [FULL])
    assert record == replace(FULL, outcome="broken", reason=record.reason)


def test_the_reason_of_an_unplanned_record_is_how_to_plan_it():
    (record,) = reconcile([], [a_record("passed")])
    assert "write its name as a literal" in record.reason


def test_of_two_records_of_one_name_the_worse_counts():
    for worse_one, better_one in itertools.combinations_with_replacement(WORST_FIRST, 2):
        for outcomes in ((worse_one, better_one), (better_one, worse_one)):
            (record,) = reconcile(["a.b"], [a_record(outcome) for outcome in outcomes])
            assert record.outcome == worse_one, outcomes


def test_without_a_plan_and_records_there_is_nothing():
    assert reconcile([], []) == ()


# ------------------------------------------------------------------------------------------------------ green and worst


@pytest.mark.parametrize(
    ("outcome", "compared"),
    [
        ("passed", True),
        ("failed", True),
        ("broken", True),
        ("known", True),
        ("fixed", True),
        ("skipped", False),
        ("missing", False),
    ],
)
def test_skipped_and_missing_checks_compared_nothing(outcome, compared):
    assert is_compared(a_record(outcome)) is compared


@pytest.mark.parametrize(
    ("outcomes", "green"),
    [
        ([], False),
        (["skipped"], False),
        (["skipped", "skipped"], False),
        (["missing"], False),
        (["passed"], True),
        (["known"], True),
        (["fixed"], True),
        (["passed", "skipped"], True),
        (["skipped", "known"], True),
        (["passed", "known", "fixed", "skipped"], True),
        (["failed"], False),
        (["broken"], False),
        (["passed", "failed"], False),
        (["passed", "broken"], False),
        (["passed", "missing"], False),
        (["passed", "passed", "passed", "missing"], False),
        (["known", "failed"], False),
        (["fixed", "broken"], False),
        (["passed", "pased"], False),
        (["passed", ""], False),
        (["PASSED"], False),
    ],
)
def test_green_needs_a_comparison_and_no_red_check(outcomes, green):
    assert is_green([a_record(outcome) for outcome in outcomes]) is green


def test_the_worst_of_several_outcomes():
    for worse_one, better_one in itertools.combinations(WORST_FIRST, 2):
        assert worst([better_one, worse_one, better_one]) == worse_one, (worse_one, better_one)


def test_every_outcome_has_a_place_in_the_order():
    assert sorted(WORST_FIRST) == sorted(OUTCOMES)
    assert [worst([outcome]) for outcome in OUTCOMES] == list(OUTCOMES)


def test_of_two_records_with_the_same_outcome_the_later_counts():
    later = replace(FULL, reason="later")
    assert worse(FULL, later) is later
