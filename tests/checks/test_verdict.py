"""The last cell makes a notebook red unless every planned check ran and none is red."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from xpulab.checks.verdict import NotebookIsRed
from xpulab.errors import InputError

IMPORTS = "from xpulab.checks import check\nfrom xpulab.checks.verdict import verdict"
GOOD = 'check.equal("a.good", 1, 1, control=2)'
BAD = 'check.equal("a.bad", 3, 1, control=2)'
BROKEN = 'check.equal("a.broken", 1, 1, control=1)'
SKIP = 'check.skip("a.skip", "no card")'


class Notebook:
    """Cells run one after the other in a real IPython, as a kernel runs them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self.error: BaseException | None = None
        self.store_history = True
        self.run(IMPORTS)

    def run(self, *cells: str) -> Notebook:
        for cell in cells:
            with capture_output() as self.captured:
                done = self._shell.run_cell(cell, store_history=self.store_history)
            self.error = done.error_before_exec or done.error_in_exec
        return self

    @property
    def printed(self) -> str:
        """What the last cell printed, traceback included."""
        return self.captured.stdout

    @property
    def text(self) -> str:
        """What a terminal shows in place of the first HTML that the last cell displayed."""
        return self.captured.outputs[0].data["text/plain"]

    @property
    def table(self) -> str:
        """The first HTML that the last cell displayed."""
        return self.captured.outputs[0].data["text/html"]


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance(config=config)
    yield Notebook(shell)
    shell.restore_sys_module_state()
    InteractiveShell.clear_instance()


FIXED = BAD.replace("3", "1")
LOOP = 'for value in (3, 1):\n    check.equal("a.loop", value, 1, control=2)'
GREEN = {
    "passed": [GOOD],
    "a skip beside it": [GOOD, SKIP],
    "a fixed cell that is run again": [BAD, FIXED],
    "a fixed loop that is run again": [LOOP, LOOP.replace("3", "1")],
    "a fixed cell before a skip": [BAD, 'check.skip("a.bad", "never mind")', FIXED],
    "magics and shell lines": ["%matplotlib --list\nfiles = !true\n" + GOOD],
}


@pytest.mark.parametrize("cells", GREEN.values(), ids=GREEN)
def test_a_notebook_whose_checks_pass_is_green(notebook, cells):
    assert notebook.run(*cells, "verdict()").error is None


def test_the_verdict_counts_compared_checks_and_rejected_controls(notebook):
    notebook.run(GOOD, SKIP, "verdict()")
    assert notebook.text == "1 passed, 1 skipped. 1 of 2 planned checks compared; 1 controls rejected."


TABLE = 'with check.table("a.table", means="it holds") as rows:\n    '
NOTHING = "nothing was compared, so the notebook is not green"
RED = {
    "failed": ([GOOD, BAD], "1 of 2 checks are red: a.bad (failed)"),
    "broken": ([GOOD, BROKEN], "1 of 2 checks are red: a.broken (broken)"),
    "in a branch": ([GOOD, f"if False:\n    {BAD}"], "1 of 2 checks are red: a.bad (missing)"),
    "in a function": ([GOOD, f"def later():\n    {BAD}"], "1 of 2 checks are red: a.bad (missing)"),
    "in a loop over nothing": ([GOOD, f"for _ in []:\n    {BAD}"], "1 of 2 checks are red: a.bad (missing)"),
    "after an error": ([GOOD, f"raise RuntimeError\n{BAD}"], "1 of 2 checks are red: a.bad (missing)"),
    "all skipped": ([SKIP], NOTHING),
    "no check": (["1 + 1"], NOTHING),
    "another name": ([GOOD, 'same = check\nsame.equal("a.b", 1, 1, control=2)'], "1 of 2 checks are red: a.b (broken)"),
    "in a cell magic": ([GOOD, '%%time\ncheck.equal("a.b", 1, 1, control=2)'], "1 of 2 checks are red: a.b (broken)"),
    "table without rows": ([GOOD, f"{TABLE}pass"], "1 of 2 checks are red: a.table (failed)"),
    "only a skipped table": ([f'{TABLE}rows.skip("x", "y")'], NOTHING),
    "first in a loop": ([LOOP], "1 of 1 checks are red: a.loop (failed)"),
    "last in a loop": ([LOOP.replace("3, 1", "1, 3")], "1 of 1 checks are red: a.loop (failed)"),
    "broken and run again": ([GOOD, GOOD.replace("1, 1", "3, 1")], "1 of 1 checks are red: a.good (failed)"),
    "a later skip": ([GOOD, BAD, SKIP.replace("a.skip", "a.bad")], "1 of 2 checks are red: a.bad (failed)"),
    "an earlier skip": ([GOOD, SKIP.replace("a.skip", "a.bad"), BAD], "1 of 2 checks are red: a.bad (failed)"),
}


@pytest.mark.parametrize(("cells", "why"), RED.values(), ids=RED)
def test_the_reason_why_a_notebook_is_red(notebook, cells, why):
    assert str(notebook.run(*cells, "verdict()").error) == why


def test_a_red_notebook_shows_its_table_and_then_one_line_without_code(notebook):
    assert isinstance(notebook.run(BAD, "verdict()").error, NotebookIsRed)
    assert "a.bad" in notebook.table
    assert notebook.printed.splitlines()[-1] == "NotebookIsRed: 1 of 1 checks are red: a.bad (failed)"
    assert "Traceback" not in notebook.printed and "verdict()" not in notebook.printed


def test_a_check_with_a_computed_name_is_refused_with_its_cell_and_line(notebook):
    error = notebook.run(GOOD, 'x = 1\ncheck.equal(f"a.{x}", 1, 1, control=2)', "verdict()").error
    assert isinstance(error, InputError) and str(error).startswith("this notebook cell 3 line 2: ")


@pytest.fixture
def without_history(notebook):
    """The notebook without history, as in a kernel driven by nbval."""
    notebook.store_history = False
    return notebook.run("In.clear()", "check.ledger.watch_cells()")


@pytest.mark.parametrize(
    "cells",
    [[GOOD, f"if False:\n    {BAD}", "verdict()"], [GOOD, f"if False:\n    {BAD}\nverdict()"]],
    ids=["in a cell before", "in the cell of the verdict"],
)
def test_without_history_checks_are_planned_by_the_cells_that_ran(without_history, cells):
    assert str(without_history.run(*cells).error) == "1 of 2 checks are red: a.bad (missing)"
