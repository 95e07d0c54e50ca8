"""A fleet: what has no majority is said, several types are compared apart, and what cannot be read is a finding."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import card, check, measurement, measuring, of, red, result
from xpulab.errors import InputError
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.runs import read_runs


@pytest.fixture
def fleet(put):
    """fleet(result, ..., mixed=...): the comparison of nodes n0, n1, ..."""

    def compared(*results, mixed=False):
        runs, unreadable = read_runs(put(**{f"n{at}": each for at, each in enumerate(results)}))
        return compare_machines(runs, unreadable, mixed)

    return compared


def kinds(comparison):
    return [(finding.kind, finding.node) for finding in comparison.findings]


def test_equal_machines_have_no_finding(fleet):
    comparison = fleet(*[of(check())] * 4)
    assert (kinds(comparison), comparison.summary, comparison.notes) == ([], "nothing found", ())
    assert comparison.subject.startswith("4 runs of one type of machine: device xpu")


def test_without_a_majority_both_values_are_shown_and_no_node_is_accused(fleet):
    comparison = fleet(*[of(check())] * 2, *[of(check(measured=0.5))] * 2)
    (found,) = comparison.findings
    assert (found.kind, found.node) == ("no majority", "")
    assert "n0 and 1 more: 0.25 [00112233445566aa]; n2 and 1 more: 0.5 [00112233445566aa]" in found.sentence


def test_two_machines_are_too_few_and_the_comparison_says_so(fleet):
    comparison = fleet(of(check()), of(check(measured=0.5)))
    assert "2 nodes are too few for a majority" in comparison.findings[0].sentence
    assert [note.split(":")[0] for note in comparison.notes] == ["n0, n1"]


def test_mixed_types_are_refused_or_compared_apart(fleet):
    one, other = of(check()), of(check(measured=0.5), device="gpu")
    with pytest.raises(InputError, match="2 types of machines"):
        fleet(one, one, one, other, other, other)
    comparison = fleet(one, one, one, other, other, of(check(measured=0.7), device="gpu"), mixed=True)
    assert kinds(comparison) == [("differs from the majority", "n5")]
    assert comparison.subject.startswith("6 runs of 2 types of machines: 3 runs (n0, n1, n2): device xpu; ")


def test_a_card_is_on_two_nodes_also_when_these_are_of_two_types(fleet):
    nodes = [of(check(), card_facts=[card(0, "A")], **changed) for changed in ({}, {"versions": {"paddlepaddle-xpu": "3.2"}})]
    assert kinds(fleet(*nodes, mixed=True)) == [("card id twice", "n0"), ("card id twice", "n1")]


def test_a_run_that_cannot_be_read_is_a_finding_and_the_others_are_compared(put, pack):
    paths = put(a=of(check()), b=of(check()), c=of(check()))
    comparison = compare_machines(*read_runs([*paths, pack("bad", of(check()), digest="0" * 64)]), False)
    assert kinds(comparison) == [("unreadable", "bad")]
    assert comparison.summary == "1 finding on 1 of 4 runs: 1 unreadable"


def test_a_red_run_that_does_not_say_where_it_ran_is_named_and_not_compared(fleet):
    nowhere = result(red(), outcome="failed", versions={"none": ""})
    nowhere["machine"] = {}
    comparison = fleet(*[of(check())] * 3, nowhere)
    assert kinds(comparison) == [("red check", "n3")]
    assert [note.split(":")[0] for note in comparison.notes] == ["n3"]


def test_nothing_but_unfinished_runs_cannot_be_compared(fleet):
    with pytest.raises(InputError, match="none of the runs has ended"):
        fleet(*[of(check(), outcome="running")] * 3)


def test_rates_are_shown_with_median_bound_and_the_worst_node(fleet):
    comparison = fleet(*[of(measuring(measurement("rate", value))) for value in (10.0, 10.2, 9.8)])
    rates, seconds = comparison.tables
    (shown,) = [dict(zip(rates.columns, row, strict=True)) for row in rates.rows]
    assert (shown["median"], shown["worst"], shown["unit"], shown["node"]) == (10.0, 9.8, "GB/s", "n2")
    assert seconds.title == "Seconds of the chapters, not judged"


def test_seconds_of_chapters_are_shown_and_never_a_finding(fleet):
    slow = of(check())
    slow["notebooks"][0]["seconds"] = 900.0
    comparison = fleet(*[of(check())] * 3, slow)
    assert comparison.findings == ()
    assert comparison.tables[-1].rows == (("00_demo", 2.0, 2.0, 900.0, "n3"),)


def test_a_known_issue_that_only_some_machines_meet_is_shown(fleet):
    known = check("demo.known", outcome="known", measured=1.0, digest=None, reason="a defect")
    comparison = fleet(of(check(), known), of(check(), known), of(check(), check("demo.known", digest=None)))
    assert comparison.tables[-1].rows == (("demo.known", "known", 2),)
