"""A run that is stopped, a client that does not return and what a kernel left; what kernels do in a run: test_frame.py."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import psutil
import pytest

from tests.conftest import GOOD
from xpulab.child import Child
from xpulab.harness.execute import Execution, RunOptions
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.harness.watchdog import Watchdog

pytestmark = pytest.mark.integration

LATER = 'check.equal("demo.later", 2, 2, control=3)'


def gone(process):
    """Whether the process ends within ten seconds."""
    try:
        psutil.Process(process).wait(10)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        return False
    return True


def outcomes(verdict):
    return {record.name: record.outcome for record in verdict.records}


def test_a_notebook_that_is_about_to_start_when_the_run_is_stopped_does_not_start(put, tmp_path):
    started = []
    execution = Execution(RunOptions("cpu", "quick", 1), tmp_path / "out", on_start=started.append)

    class StoppedJustThen(set):
        def add(self, watchdog):
            execution.stop()
            super().add(watchdog)

    execution._watchdogs = StoppedJustThen()
    assert list(execution.run([read_plan(put("late", GOOD), "quick")], 1)) == []
    assert started == [] and not (tmp_path / "out").exists()


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


@pytest.fixture
def kernel():
    """A process that leads a group, as kernels do, and a child of it, neither of which listens to SIGINT."""
    source = (
        "import signal, subprocess, sys\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '100'])\nprint(child.pid, flush=True)\nchild.wait()"
    )
    command = [sys.executable, "-c", source]
    with Child(command, stdout=subprocess.PIPE) as process:
        yield process.pid, int(process.stdout.readline())


def test_what_a_kernel_left_running_is_killed_at_the_end_and_the_first_reason_stays(kernel, tmp_path):
    watchdog = Watchdog(100, tmp_path / "log")
    watchdog.kernel_started(kernel[0])
    watchdog.stop("interrupted")
    watchdog.stop("cell 3 had not ended")
    watchdog.close()
    assert all(map(gone, kernel)) and watchdog.reason == "interrupted"


def test_a_kernel_that_does_not_listen_is_killed_after_a_grace(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr("xpulab.harness.watchdog._GRACE_SECONDS", 0.1)
    watchdog = Watchdog(0.1, tmp_path / "log")
    watchdog.cell = 4
    watchdog.kernel_started(kernel[0])
    assert all(map(gone, kernel))
    assert watchdog.reason == "cell 4 had not ended after 0 s"
    watchdog.close()


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
