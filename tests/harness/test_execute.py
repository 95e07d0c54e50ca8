"""A run that is stopped, and a client that does not return; what kernels do in a run: test_frame.py."""

from __future__ import annotations

import threading
import time

import pytest

from tests.conftest import GOOD
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan

pytestmark = pytest.mark.integration

LATER = 'check.equal("demo.later", 2, 2, control=3)'


def outcomes(verdict):
    return {record.name: record.outcome for record in verdict.records}


def test_a_client_that_does_not_come_back_is_left_behind(put, tmp_path, monkeypatch):
    for name in ("_GRACE_SECONDS", "_RETURN_SECONDS"):
        monkeypatch.setattr(f"xpulab.harness.watchdog.{name}", 0.01)
    never, called = threading.Event(), threading.Event()
    monkeypatch.setattr("xpulab.harness.execute._Client.execute", lambda self: called.set() or never.wait())
    plan = read_plan(put("stuck", GOOD), "quick")
    (tmp_path / "out").mkdir()
    execution = Execution(RunOptions("cpu", "quick", 1), tmp_path / "out")
    threading.Thread(target=lambda: called.wait() and execution.stop(), daemon=True).start()
    [(_, executed)] = execution.run([plan], 1)
    never.set()
    verdict = judge(plan, executed)
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.good": "missing"})
    assert verdict.run.stopped == "interrupted; nbclient did not return from it"


def test_a_run_that_is_left_early_stops_what_runs_and_starts_nothing_more(put, tmp_path):
    mark = tmp_path / "in_the_loop"
    loop = f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\nwhile True:\n    time.sleep(0.01)"
    first = read_plan(put("first", GOOD, budget=90), "quick")
    endless = read_plan(put("endless", loop, LATER, budget=80), "quick")
    waiting = read_plan(put("waiting", GOOD), "quick")
    (tmp_path / "out").mkdir()
    run = Execution(RunOptions("cpu", "quick", 1), tmp_path / "out").run([endless, waiting, first], 2)
    assert next(iter(run))[0].name in ("first", "waiting")
    end = time.monotonic() + 60
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.05)
    run.close()
    assert judge(endless, tmp_path / "out" / "endless.ipynb").run.stopped == "interrupted"


@pytest.mark.parametrize(("device", "is_stopped"), [("cpu", True), ("xpu", False)])
def test_a_kernel_of_a_card_has_more_time_since_it_starts_cold(put, tmp_path, device, is_stopped):
    plan = read_plan(put("slow", "import time\ntime.sleep(3)", GOOD, budget=1), "quick")
    (tmp_path / "out").mkdir()
    options = RunOptions(device, "quick", 1, limit_in_budgets=2)
    [(_, executed)] = Execution(options, tmp_path / "out").run([plan], 1)
    assert (judge(plan, executed).run.stopped is not None) == is_stopped
