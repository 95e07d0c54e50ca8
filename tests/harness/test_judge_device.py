"""Two ways for a verdict to be green on the word of another run or machine, both closed."""

from __future__ import annotations

from dataclasses import asdict

import nbformat
import pytest
from nbformat import v4

from xpulab.harness.execute import Execution, Run, Target
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.records.record import Record

pytestmark = pytest.mark.integration

GOOD = 'check.equal("demo.good", 2, 2, control=3)'


def shown():
    record = Record("demo.good", "passed", "two is two", 0.0, "equal", "rejected")
    return v4.new_output("display_data", {"text/plain": "passed"}, metadata=record.to_metadata())


@pytest.mark.parametrize(("device", "outcome"), [("cpu", "passed"), ("gpu", "failed"), ("xpu", "failed")])
def test_a_notebook_that_was_to_run_on_a_card_must_say_where_it_ran(book, tmp_path, device, outcome):
    notebook = book(GOOD)
    notebook.cells[3].outputs = [shown()]
    nbformat.write(notebook, tmp_path / "demo.ipynb")
    notebook.metadata["xpulab"]["run"] = asdict(Run(device, "quick", 1, 1.0, 30.0, None))
    nbformat.write(notebook, tmp_path / "executed.ipynb")
    verdict = judge(read_plan(tmp_path / "demo.ipynb", "quick"), tmp_path / "executed.ipynb")
    assert verdict.outcome == outcome
    assert device == "cpu" or f"it was to run on {device}, but did not record where it ran" in verdict.reasons


def test_what_was_committed_does_not_count_as_seen_when_nothing_ran(book, tmp_path):
    notebook = book(GOOD, kernel=None)
    notebook.cells[3].outputs = [shown()]
    nbformat.write(notebook, tmp_path / "demo.ipynb")
    (tmp_path / "out").mkdir()
    plan = read_plan(tmp_path / "demo.ipynb", "quick")
    [(_, executed)] = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *at: None).run([plan], 1)
    verdict = judge(plan, executed)
    assert ([record.outcome for record in verdict.records], verdict.outcome, verdict.compared) == (["missing"], "failed", 0)


def test_a_notebook_that_is_about_to_start_when_the_run_is_stopped_does_not_start(put, tmp_path):
    execution = Execution(Target("cpu", "quick", 1), tmp_path, lambda *at: None)

    class StoppedJustThen(set):
        def add(self, watchdog):
            execution.stop()
            super().add(watchdog)

    execution._watchdogs = StoppedJustThen()
    assert list(execution.run([read_plan(put("late", GOOD), "quick")], 1)) == []
    assert not (tmp_path / "late.log").exists()
