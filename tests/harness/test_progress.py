"""What is red is shown when its cell ends: chapter, check, measured and expected in one line, in a terminal and in a log."""

from __future__ import annotations

import io

import pytest
from nbformat import v4
from rich.console import Console

from tests.conftest import GOOD
from xpulab.harness.plan import read_plan
from xpulab.harness.progress import Progress, red_lines
from xpulab.records.record import Record, Row

FAILED = Record("demo.good", "failed", "two is two", 0.9, "< 0.63", "rejected", reason="it is\nmore")


def cell(*records, error=None):
    """A code cell that has ended."""
    outputs = [v4.new_output("display_data", {}, metadata=record.to_metadata()) for record in records]
    outputs += [v4.new_output("error", ename=error[0], evalue=error[1], traceback=[])] if error else []
    return v4.new_code_cell("...", outputs=outputs)


@pytest.fixture
def plan(put):
    return read_plan(put("one", GOOD), "quick")


ROWS = (Row("a", "passed", 1.0, "1", "rejected"), Row("b", "failed", 3.0, "2", "rejected", "too much"))
TABLE = Record("demo.good", "failed", "m", "1 of 2", "all", rows=ROWS)
LINE = "one: RED failed demo.good: measured 0.9, expected < 0.63; it is more"


@pytest.mark.parametrize(
    ("ended", "lines"),
    [
        (cell(FAILED), [LINE]),
        (cell(TABLE), ["one: RED failed demo.good: b: measured 3.0, expected 2; too much"]),
        *((cell(Record("demo.good", outcome, "m")), []) for outcome in ("passed", "skipped", "known", "fixed")),
        (cell(error=("ValueError", "wrong\nin two lines")), ["one: RED a cell raised ValueError: wrong in two lines"]),
        (cell(error=("AssertionError", "")), ["one: RED a cell raised AssertionError"]),
        (cell(error=("NotebookIsRed", "1 check is red")), []),
        (cell(error=("KeyboardInterrupt", "")), []),
    ],
)
def test_what_is_red_in_a_cell_is_one_line_each(plan, ended, lines):
    assert list(red_lines(plan, ended)) == lines


def test_it_is_shown_before_the_notebook_ends(plan):
    console = Console(file=io.StringIO(), width=60)
    Progress(console).on_cell_end(plan, cell(FAILED))
    assert LINE in console.file.getvalue()
