"""Which notebook starts when is up to the admission; a run that is stopped starts nothing more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import GOOD
from xpulab.harness import execute
from xpulab.harness.execute import Execution, Target
from xpulab.harness.plan import read_plan


class OneByOne:
    """An admission that has room for one, and counts what it hears."""

    def __init__(self, machine):
        self.changes = 0

    def next(self, now, running, waiting):
        return None if running else 0

    def changed(self):
        self.changes += 1


@pytest.fixture
def started(monkeypatch):
    """The names of the notebooks that papermill was given, in order; none is executed."""
    names = []
    monkeypatch.setattr("papermill.execute_notebook", lambda source, *given, **options: names.append(Path(source).stem))
    return names


@pytest.fixture
def plans(put):
    budgets = {"middle": 60, "short": 10, "long": 90}
    return [read_plan(put(name, GOOD, budget=budget), "quick") for name, budget in budgets.items()]


@pytest.fixture
def execution(tmp_path):
    (tmp_path / "out").mkdir()
    return Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: None)


def test_without_a_number_the_admission_decides(execution, plans, started, monkeypatch):
    asked = []
    monkeypatch.setattr(execute, "ByLoad", lambda machine: asked.append(OneByOne(machine)) or asked[0])
    assert [plan.name for plan, _ in execution.run(plans)] == started == ["short", "long", "middle"]
    assert asked[0].changes == 6, "three starts and three ends"


def test_with_a_number_the_machine_is_not_asked(execution, plans, started, monkeypatch):
    monkeypatch.setattr(execute, "ByLoad", lambda machine: pytest.fail("it was asked"))
    assert [plan.name for plan, _ in execution.run(plans, 1)] == started == ["long", "middle", "short"]


def test_a_run_that_is_stopped_starts_nothing_more(execution, plans, started, monkeypatch):
    monkeypatch.setattr(execute, "ByLoad", OneByOne)
    run = execution.run(plans)
    next(run)
    execution.stop()
    list(run)
    assert started in (["short"], ["short", "long"])


def test_a_run_of_nothing_ends(execution):
    assert list(execution.run([])) == []
    assert list(execution.run([], 2)) == []
