"""Capabilities of two sides: green, known, red with the first failing check, and what an upgrade changes."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import check, notebook, of, result, row, table
from xpulab.fleet.compare.capabilities import Standing, change, format_standing, standings
from xpulab.fleet.compare.comparison import Side
from xpulab.fleet.compare.upgrade import compare_upgrade
from xpulab.fleet.runs import read_runs

RED, NEVER_RAN = (
    {"outcome": "failed", "reason": "too  large"},
    {"outcome": "missing", "measured": None, "reason": "not reached"},
)
KNOWN = {"outcome": "known", "reason": "a defect"}
SKIPPED = {"outcome": "skipped", "measured": None, "reason": "no kernel"}


@pytest.fixture
def standing(put):
    """standing(check, ...): what a run with these checks says of the capability demo."""

    def found(*checks):
        return standings(Side("a", read_runs(put(a=of(*checks)))[0]))["demo"]

    return found


@pytest.mark.parametrize(
    ("checks", "shown"),
    [
        ([check("demo.a"), check("demo.b", **SKIPPED)], "green"),
        ([check("demo.a", outcome="fixed")], "green"),
        ([check("demo.a"), check("demo.b", **KNOWN)], "known: demo.b"),
        ([check("demo.a", **KNOWN), check("demo.b", **RED)], "red: demo.b"),
        ([check("demo.a", **SKIPPED)], "not compared"),
        ([check("demo.a", **NEVER_RAN), check("demo.b"), check("demo.c", **RED)], "red: demo.c and 1 more"),
    ],
)
def test_the_worst_check_counts_and_what_never_ran_is_named_last(standing, checks, shown):
    assert format_standing(standing(*checks)) == shown


def test_the_reason_is_that_of_the_first_red_row_in_one_line(standing):
    rows = [row("a"), row("b", "failed", reason="two\n lines"), row("c", "failed")]
    found = standing(check("demo.a", **{**RED, "rows": rows}))
    assert (found.case, found.reason) == ("b", "two lines")
    assert standing(check("demo.a", **RED)) == Standing("red", ("demo.a",), "", "too large")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("cell 3 raised ValueError: no; 1 of 2 checks are red: demo.b", "cell 3 raised ValueError: no"),
        ("1 of 2 checks are red: demo.b", "not reached"),
        (None, "not reached"),
    ],
)
def test_of_a_check_that_never_ran_the_reason_is_what_stopped_its_chapter(put, reason, said):
    stopped = notebook(check("demo.a"), check("demo.b", **NEVER_RAN), outcome="failed", reason=reason)
    assert standings(Side("a", read_runs(put(a=result(stopped)))[0]))["demo"].reason == said


def test_the_worst_of_several_runs_counts(put):
    runs = read_runs(put(a=of(check("demo.a")), b=of(check("demo.a", **RED))))[0]
    assert standings(Side("both", runs))["demo"].outcome == "red"


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [("green", "red", "worse"), ("known", "green", "better"), ("not compared", "known", "better"), ("red", "red", "")],
)
def test_outcomes_have_an_order(before, after, how):
    assert change(Standing(before), Standing(after)) == how
    assert change(Standing(before), None) == ""


def test_an_upgrade_shows_each_capability_and_first_those_that_differ(put):
    before = of(check("one.a"), check("two.a", **RED), check("three.a"), versions={"paddlepaddle": "3.2.2"})
    after = of(check("one.a"), check("two.a"), check("three.a", **RED), check("four.a"), versions={"paddlepaddle": "3.3.1"})
    shown = table(compare_upgrade(read_runs(put(b=before, a=after))[0]), "Capabilities")
    assert shown.columns == ("capability", "before", "after", "change")
    assert shown.rows == (
        ("two", "red: two.a", "green", "better"),
        ("three", "green", "red: three.a", "worse"),
        ("one", "green", "green", ""),
        ("four", "not planned", "green", ""),
    )
