"""Whatever happens to a kernel, its notebook ends with a reason, the others go on, and no process is left."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4

from tests.conftest import GOOD
from xpulab.child import Child
from xpulab.harness.execute import Execution, Target
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.harness.watchdog import Watchdog

pytestmark = pytest.mark.integration

LATER = 'check.equal("demo.later", 2, 2, control=3)'
MEET = """
import pathlib, time
here = pathlib.Path({folder!r})
(here / "{me}.here").touch()
until = time.monotonic() + 60
while not (here / "{other}.here").exists() and time.monotonic() < until:
    time.sleep(0.05)
check.equal("demo.met", (here / "{other}.here").exists(), True, control=False)
check.equal("demo.name", "{me}", "{me}", control="{other}", means="I am {me}")
"""
TEMPORARY = 'import tempfile\nprint("made", tempfile.mkdtemp())'
SHOW = 'print(f"{device} {level} {cards}")'


def notebooks(make, folder):
    """The notebooks of the shared run, by name."""
    return {
        # the longest budgets start first, so the twins run side by side
        "twin_a": make(MEET.format(folder=str(folder), me="twin_a", other="twin_b"), budget=90),
        "twin_b": make(MEET.format(folder=str(folder), me="twin_b", other="twin_a"), budget=90),
        "all_parameters": make(SHOW, GOOD, TEMPORARY),
        "device_only": make('level, cards = "mine", 7', SHOW, GOOD, parameters='device = "auto"'),
        "endless": make(v4.new_markdown_cell("On and on"), "import time\nwhile True:\n    time.sleep(0.01)", LATER, budget=0.8),
        "unknown_kernel": make(GOOD, kernel={"name": "nowhere", "display_name": "Nowhere", "language": "python"}),
        "no_kernel": make(GOOD, kernel=None),
        "kernel_that_ends": make(GOOD, kernel={"name": "ends", "display_name": "Ends", "language": "python"}),
        "kernel_that_hangs": make(GOOD, kernel={"name": "hangs", "display_name": "Hangs", "language": "python"}, budget=0.5),
    }


@pytest.fixture(scope="module")
def folder(once, book):
    """Where all of them were run once, three at a time; cells.json holds what the listener was told."""

    def fill(folder):
        for name, argv in {"ends": ["false"], "hangs": ["sleep", "60"]}.items():
            spec = folder / "kernels" / name / "kernel.json"
            spec.parent.mkdir(parents=True)
            spec.write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))
        (folder / "sources").mkdir()
        (folder / "out").mkdir()
        for name, notebook in notebooks(book, folder).items():
            nbformat.write(notebook, folder / "sources" / f"{name}.ipynb")
        plans = [read_plan(path, "quick") for path in (folder / "sources").glob("*.ipynb")]
        told = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_PATH", str(folder))
            target = Target("cpu", "quick", 2)
            execution = Execution(target, folder / "out", lambda plan, *cell: told.append((plan.name, *cell)))
            done = [plan.name for plan, _ in execution.run(plans, 3)]
        (folder / "cells.json").write_text(json.dumps({"done": done, "told": told}))

    return once("executed", fill)


@pytest.fixture
def verdict_on(folder) -> Callable:
    """The verdict on a notebook of the shared run."""

    def verdict(name):
        return judge(read_plan(folder / "sources" / f"{name}.ipynb", "quick"), folder / "out" / f"{name}.ipynb")

    return verdict


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


def test_two_notebooks_at_a_time_meet_and_do_not_mix(verdict_on):
    for name in ("twin_a", "twin_b"):
        verdict = verdict_on(name)
        assert verdict.outcome == "passed", verdict.reasons
        assert next(record.means for record in verdict.records if record.name == "demo.name") == f"I am {name}"


def test_the_parameters_that_a_notebook_declares_are_injected(verdict_on):
    shown = verdict_on("device_only").executed.read_text()
    assert '"cpu mine 7\\n"' in shown and "level =" not in shown
    green = verdict_on("all_parameters")
    shown = green.executed.read_text()
    assert '"cpu quick 2\\n"' in shown and (green.outcome, green.reasons, green.compared) == ("passed", (), 1)
    assert (green.run.device, green.run.level, green.run.cards, green.run.budget_seconds) == ("cpu", "quick", 2, 30)
    assert 0 < green.run.seconds < 60 and green.run.stopped is None
    made = Path(re.search(r"made (\S+?)\\n", shown)[1])  # its temporary folder, which is gone
    assert made.parent.name.startswith("xpulab-") and not made.parent.exists()


def test_a_notebook_that_is_about_to_start_when_the_run_is_stopped_does_not_start(put, tmp_path):
    execution = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: pytest.fail("it was started"))

    class StoppedJustThen(set):
        def add(self, watchdog):
            execution.stop()
            super().add(watchdog)

    execution._watchdogs = StoppedJustThen()
    assert list(execution.run([read_plan(put("late", GOOD), "quick")], 1)) == []
    assert not (tmp_path / "out").exists()


def test_a_client_that_does_not_come_back_is_left_behind(put, tmp_path, monkeypatch):
    for name in ("START_SECONDS", "_GRACE_SECONDS", "_RETURN_SECONDS"):
        monkeypatch.setattr(f"xpulab.harness.watchdog.{name}", 0.01)
    never = threading.Event()
    monkeypatch.setattr("xpulab.harness.execute._Client.execute", lambda self: never.wait())
    plan = read_plan(put("stuck", GOOD), "quick")
    (tmp_path / "out").mkdir()
    [(_, executed)] = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: None).run([plan], 1)
    never.set()
    verdict = judge(plan, executed)
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.good": "missing"})
    assert verdict.run.stopped == "no kernel was started; nbclient did not return from it"


def test_a_cell_that_never_ends_is_counted_as_a_reader_of_the_code_counts(verdict_on):
    verdict = verdict_on("endless")
    assert verdict.run.stopped == "cell 3 had not ended after 4 s"
    assert verdict.reasons[1].startswith("cell 3 of section all raised KeyboardInterrupt")
    assert outcomes(verdict) == {"demo.later": "missing"}


def test_every_notebook_comes_back_once_and_its_cells_are_told_in_order(folder, book):
    listened = json.loads((folder / "cells.json").read_text())
    assert sorted(listened["done"]) == sorted(notebooks(book, folder))
    for told, ran, cells in (("all_parameters", 6, 6), ("endless", 3, 5)):
        assert [cell for name, *cell in listened["told"] if name == told] == [[n, cells] for n in range(1, ran + 1)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("unknown_kernel", "nowhere"),
        ("no_kernel", "kernel"),
        ("kernel_that_ends", "Kernel died before replying"),
        ("kernel_that_hangs", "the kernel was not ready after 2 s"),
    ],
)
def test_a_kernel_that_does_not_start_is_a_red_notebook_with_a_reason(verdict_on, name, said):
    verdict = verdict_on(name)
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.good": "missing"})
    assert said in verdict.run.stopped


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
    first = read_plan(put("first", GOOD, budget=90), "quick")
    endless = read_plan(put("endless", "while True:\n    import time; time.sleep(0.01)", LATER, budget=80), "quick")
    waiting = read_plan(put("waiting", GOOD), "quick")
    (tmp_path / "out").mkdir()
    in_the_loop = threading.Event()

    def on_cell(plan, cell, cells):
        if (plan.name, cell) == ("endless", 3):
            in_the_loop.set()

    run = Execution(Target("cpu", "quick", 1), tmp_path / "out", on_cell).run([endless, waiting, first], 2)
    assert next(iter(run))[0].name in ("first", "waiting")
    assert in_the_loop.wait(60)
    started = time.monotonic()
    run.close()
    assert time.monotonic() - started < 30
    assert judge(endless, tmp_path / "out" / "endless.ipynb").run.stopped == "interrupted"
