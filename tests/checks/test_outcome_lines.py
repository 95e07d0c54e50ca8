"""A check prints one line, the same on every machine, unless it is red."""

from __future__ import annotations

import re

import pytest

from xpulab.checks import check
from xpulab.records import known_issues


def make_all(measured: float):
    """One check of each kind, with numbers that depend on `measured`, between 0.1 and 0.4."""
    check.close("a.close", measured, 0.25, atol=0.2, control=1.0, means="close")
    check.equal("a.equal", measured, measured, control=2.0, means="equal")
    check.bitwise("a.bitwise", measured, measured, control=2.0, means="the same")
    check.below("a.below", measured, 2 * measured, control=1.0, means="small")
    check.above("a.above", measured, measured / 2, control=0.0, means="large")
    check.between("a.between", measured, measured / 2, 0.5, control=1.0, means="between")
    check.finite("a.finite", [measured], control=[float("nan")], means="finite")
    check.raises("a.raises", ValueError, lambda: int(f"x{measured}"), control=lambda: None, means="refused")
    with check.table("a.table", means="all of them") as rows:
        rows.below("case", measured, 2 * measured, control=1.0)


def texts(shown):
    return [data["text/plain"] for data, _ in shown.outputs]


def test_a_passed_check_prints_the_same_for_all_numbers(shown):
    make_all(0.2)
    first = texts(shown)
    shown.outputs.clear()
    make_all(0.3)
    assert texts(shown) == first


def test_the_numbers_are_in_the_metadata(shown):
    check.below("a.b", 0.25, 1.0, control=1.0)
    assert (shown.record.measured, shown.record.expected) == (0.25, "< 1")


def test_a_passed_check_prints_one_line_as_text_and_as_html(shown):
    make_all(0.2)
    assert not any("\n" in text for data, _ in shown.outputs for text in data.values())
    assert all(data.keys() == {"text/plain", "text/html"} for data, _ in shown.outputs)


def test_the_html_of_a_line_has_the_words_of_the_line(shown):
    make_all(0.2)
    assert [words(data["text/html"]) for data, _ in shown.outputs] == [words(text) for text in texts(shown)]


def words(text):
    return re.sub(r"<[^>]+>", " ", text).split()


LINES = {
    "passed": (lambda: check.below("a.b", 0.25, 1.0, control=1.0, means="small"), "passed  a.b  small"),
    "skipped": (lambda: check.skip("a.b", "gloo has no all_to_all"), "skipped a.b  gloo has no all_to_all"),
    "a number": (lambda: check.below("a.b", 1.23456789, 1.0, control=1.0), "measured 1.23457, expected < 1, control rejected"),
    "a text": (lambda: check.equal("a.b", "left", "right", control="other"), "measured left, expected equal, control rejected"),
    "not a number": (lambda: check.below("a.b", float("nan"), 1.0, control=1.0), "measured nothing, expected < 1, control"),
    "raised": (lambda: check.equal("a.b", lambda: 1 / 0, 1, control=2), "measured nothing, expected -, control not tried"),
}


@pytest.mark.parametrize(("make", "line"), LINES.values(), ids=LINES)
def test_a_line_has_outcome_name_and_meaning_and_a_red_one_what_was_measured(make, line, shown):
    make()
    assert line in shown.text


@pytest.mark.parametrize("measured", [5, 1])
def test_a_known_or_fixed_line_has_no_numbers(shown, monkeypatch, measured):
    issue = known_issues.KnownIssue("it", "a.b", {"numpy": ">=1"}, ("cpu",), "it is wrong", "here", "use another")
    monkeypatch.setattr(known_issues, "load", lambda: (issue,))
    check.equal("a.b", measured, 1, control=2, means="equal")
    assert shown.text == {5: "known   a.b  equal", 1: "fixed   a.b  equal"}[measured]


RED = {
    "failed": lambda: check.equal("a.b", 3, 1, control=2),
    "broken": lambda: check.equal("a.b", 1, 1, control=1),
    "raised": lambda: check.equal("a.b", lambda: 1 / 0, 1, control=1),
}


@pytest.mark.parametrize("make", RED.values(), ids=RED.keys())
def test_a_red_check_is_shown_in_red_with_the_same_words(make, shown):
    make()
    assert "background:#b00020" in shown.html and words(shown.html) == shown.text.split()


def test_a_measured_value_cannot_inject_html(shown):
    check.equal("a.b", "<script>", "x", control="y")
    assert "<script>" not in shown.html
