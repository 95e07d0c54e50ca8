"""The record that passes from a kernel to the outside, and the rules that both sides share."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from xpulab.records.record import (
    METADATA_KEY,
    OUTCOMES,
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
def test_a_record_survives_its_way_through_json(record):
    assert record_in(through_json(record.to_metadata())) == record


def test_a_record_stands_beside_what_others_store_in_an_outputs_metadata():
    assert record_in({**through_json(FULL.to_metadata()), "tags": ["x"]}) == FULL


@pytest.mark.parametrize("metadata", [{}, {"tags": []}, {METADATA_KEY: {}}, {METADATA_KEY: {"run_context": {}}}])
def test_an_output_without_a_record_has_none(metadata):
    assert record_in(metadata) is None


def test_a_setting_survives_its_way_through_json():
    run_context = RunContext("xpu", 8, {"cores": 64}, {"numpy": "1.26.4"})
    assert run_context_in(through_json(run_context.to_metadata())) == run_context


def test_an_output_with_a_record_has_no_setting():
    assert run_context_in(FULL.to_metadata()) is None


@pytest.mark.parametrize(("name", "capability"), [("sft.loss", "sft"), ("device-proof.a.b", "device-proof")])
def test_the_capability_is_the_name_up_to_the_first_dot(name, capability):
    assert a_record("passed", name).capability == capability


# -------------------------------------------------------------------------------------------------------------- reconcile


def test_what_was_seen_is_put_in_the_order_of_the_plan():
    seen = [a_record("passed", "a.two"), a_record("failed", "a.one")]
    assert reconcile(["a.one", "a.two"], seen) == (seen[1], seen[0])


def test_what_was_planned_and_not_seen_is_missing():
    (record,) = reconcile(["a.b"], [])
    assert (record.name, record.outcome) == ("a.b", "missing")


def test_what_is_missing_stands_where_it_was_planned():
    settled = reconcile(["a.one", "a.two", "a.three"], [a_record("passed", "a.three"), a_record("passed", "a.one")])
    assert [record.outcome for record in settled] == ["passed", "missing", "passed"]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_was_never_planned_is_broken_whatever_came_of_it(outcome):
    (record,) = reconcile([], [a_record(outcome)])
    assert record.outcome == "broken"


def test_what_was_never_planned_comes_last():
    settled = reconcile(["a.two"], [a_record("passed", "a.one"), a_record("passed", "a.two")])
    assert [record.name for record in settled] == ["a.two", "a.one"]


def test_what_was_never_planned_keeps_its_rows_and_numbers():
    (record,) = reconcile([], [FULL])
    assert record == replace(FULL, outcome="broken", reason=record.reason)


def test_what_was_never_planned_says_how_to_plan_it():
    (record,) = reconcile([], [a_record("passed")])
    assert "write its name as a literal" in record.reason


@pytest.mark.parametrize(("one", "other"), itertools.product(OUTCOMES, repeat=2))
def test_of_two_records_of_one_name_the_worse_counts(one, other):
    (record,) = reconcile(["a.b"], [a_record(one), a_record(other)])
    assert record.outcome == worst([one, other])


def test_no_plan_and_nothing_seen_settle_to_nothing():
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
def test_green_is_at_least_one_comparison_and_nothing_that_is_not_well(outcomes, green):
    assert is_green([a_record(outcome) for outcome in outcomes]) is green


@pytest.mark.parametrize(
    ("worse_one", "better_one"),
    itertools.combinations(["broken", "failed", "missing", "fixed", "known", "passed", "skipped"], 2),
)
def test_the_worst_outcome_speaks_for_several(worse_one, better_one):
    assert worst([better_one, worse_one, better_one]) == worse_one


def test_every_outcome_has_its_place_among_the_worst():
    assert [worst([outcome]) for outcome in OUTCOMES] == list(OUTCOMES)


def test_of_two_equally_bad_records_the_later_speaks():
    later = replace(FULL, reason="later")
    assert worse(FULL, later) is later
