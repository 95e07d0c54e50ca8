"""What is red is shown when its cell ends: chapter, check, measured and expected in one line, in a terminal and in a log."""

from __future__ import annotations

import io

import pytest
from nbformat import v4
from rich.console import Console

from xpulab.harness.measured_times import MeasuredTimes
from xpulab.harness.plan import read_plan
from xpulab.harness.progress import progress_on, red_lines
from xpulab.records.record import Record, Row

FAILED = Record("demo.good", "failed", "two is two", 0.9, "< 0.63", "rejected", reason="it is\nmore")


def cell(*records, error=None):
    """A code cell that has ended."""
    outputs = [v4.new_output("display_data", {}, metadata=record.to_metadata()) for record in records]
    outputs += [v4.new_output("error", ename=error[0], evalue=error[1], traceback=[])] if error else []
    return v4.new_code_cell("...", outputs=outputs)


@pytest.fixture
def plan(put):
    return read_plan(put("one", 'check.equal("demo.good", 2, 2, control=3)'), "quick")


def lines(plan, *records, error=None):
    return list(red_lines(plan, cell(*records, error=error)))


def test_a_red_check_is_one_line(plan):
    assert lines(plan, FAILED) == ["one: RED failed demo.good: measured 0.9, expected < 0.63; it is more"]


@pytest.mark.parametrize("outcome", ["passed", "skipped", "known", "fixed"])
def test_what_is_not_red_is_no_line(plan, outcome):
    assert lines(plan, Record("demo.good", outcome, "two is two")) == []


def test_of_many_cases_the_first_red_one_is_shown(plan):
    rows = (Row("a", "passed", 1.0, "1", "rejected"), Row("b", "failed", 3.0, "2", "rejected", "too much"))
    assert lines(plan, Record("demo.good", "failed", "m", "1 of 2", "all", rows=rows)) == [
        "one: RED failed demo.good: b: measured 3.0, expected 2; too much"
    ]


def test_an_exception_is_a_line_but_the_verdict_of_a_red_notebook_is_not(plan):
    assert lines(plan, error=("ValueError", "wrong\nin two lines")) == ["one: RED a cell raised ValueError: wrong in two lines"]
    assert lines(plan, error=("NotebookIsRed", "1 check is red")) == []


@pytest.mark.parametrize("terminal", [True, False])
def test_it_is_shown_before_the_notebook_ends(plan, terminal, tmp_path):
    written = io.StringIO()
    console = Console(file=written, force_terminal=terminal, width=60)
    with progress_on(console, [plan], MeasuredTimes("cpu", "quick", tmp_path / "times.json")) as progress:
        progress.on_cell(plan, 3, 5)
        progress.on_cell_end(plan, cell(FAILED))
        assert "one: RED failed demo.good: measured 0.9, expected < 0.63; it is more" in written.getvalue()


def test_an_exception_without_text_has_only_its_name(plan):
    assert lines(plan, error=("AssertionError", "")) == ["one: RED a cell raised AssertionError"]


def test_an_interrupted_cell_is_not_called_red(plan):
    assert lines(plan, error=("KeyboardInterrupt", "")) == []
