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

from xpulab.child import Child
from xpulab.harness.execute import Execution, Target
from xpulab.harness.judge import judge
from xpulab.harness.plan import read_plan
from xpulab.harness.watchdog import Watchdog

pytestmark = pytest.mark.integration

GOOD = 'check.equal("demo.good", 2, 2, control=3, means="two is two")'
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
SHORT = {"budget": 0.5}


def notebooks(make, folder):
    """The notebooks of the shared run, by name."""
    return {
        # the longest budgets start first, so the twins run side by side
        "twin_a": make(MEET.format(folder=str(folder), me="twin_a", other="twin_b"), budget=90),
        "twin_b": make(MEET.format(folder=str(folder), me="twin_b", other="twin_a"), budget=90),
        "all_parameters": make(SHOW, GOOD, TEMPORARY),
        "device_only": make('level, cards = "mine", 7', SHOW, GOOD, parameters='device = "auto"'),
        "kills_itself": make("import os, signal\nos.write(2, b'last line\\n')\nos.kill(os.getpid(), signal.SIGKILL)", LATER),
        "colourful": make(GOOD, "raise ValueError('\\x1b[31mred\\x1b[0m <script>\\nsecond line')", LATER),
        "endless": make(v4.new_markdown_cell("On and on"), "import time\nwhile True:\n    time.sleep(0.01)", LATER, budget=0.8),
        "unknown_kernel": make(GOOD, kernel={"name": "nowhere", "display_name": "Nowhere", "language": "python"}),
        "no_kernel": make(GOOD, kernel=None),
        "kernel_that_ends": make(GOOD, kernel={"name": "ends", "display_name": "Ends", "language": "python"}),
        "kernel_that_hangs": make(GOOD, kernel={"name": "hangs", "display_name": "Hangs", "language": "python"}, **SHORT),
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


def outcomes(verdict):
    return {record.name: record.outcome for record in verdict.records}


def shown(verdict):
    return verdict.executed.read_text(encoding="utf-8")


def gone(process):
    """Whether the process ends within ten seconds."""
    try:
        psutil.Process(process).wait(10)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        return False
    return True


def test_every_notebook_comes_back_once(folder, book):
    assert sorted(json.loads((folder / "cells.json").read_text())["done"]) == sorted(notebooks(book, folder))


def test_two_notebooks_at_a_time_meet_and_do_not_mix(verdict_on):
    for name in ("twin_a", "twin_b"):
        verdict = verdict_on(name)
        assert verdict.outcome == "passed", verdict.reasons
        assert next(record.means for record in verdict.records if record.name == "demo.name") == f"I am {name}"


def test_the_target_is_injected(verdict_on):
    assert '"cpu quick 2\\n"' in shown(verdict_on("all_parameters"))


def test_a_parameter_that_the_notebook_does_not_declare_is_not_injected(verdict_on):
    assert '"cpu mine 7\\n"' in shown(verdict_on("device_only"))
    assert "level =" not in shown(verdict_on("device_only"))


def test_temporary_files_of_a_notebook_are_in_a_folder_of_its_own_that_is_gone(verdict_on):
    made = Path(re.search(r"made (\S+?)\\n", shown(verdict_on("all_parameters")))[1])
    assert made.parent.name.startswith("xpulab-")
    assert not made.parent.exists()


def test_a_notebook_that_comes_up_after_the_stop_is_not_started(put, tmp_path):
    execution = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: pytest.fail("it was started"))
    execution.stop()
    assert execution._run_one(read_plan(put("late", GOOD), "quick")) is None
    assert not (tmp_path / "out").exists()


def test_a_papermill_that_does_not_come_back_is_left_behind(put, tmp_path, monkeypatch):
    for name in ("START_SECONDS", "_GRACE_SECONDS", "_RETURN_SECONDS"):
        monkeypatch.setattr(f"xpulab.harness.watchdog.{name}", 0.01)
    never = threading.Event()
    monkeypatch.setattr("papermill.execute_notebook", lambda *given, **options: never.wait())
    plan = read_plan(put("stuck", GOOD), "quick")
    (tmp_path / "out").mkdir()
    [(_, executed)] = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: None).run([plan], 1)
    never.set()
    verdict = judge(plan, executed)
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.good": "missing"})
    assert verdict.run.stopped == "no kernel was started; papermill did not return from it"


def test_a_kernel_listens_on_no_port_of_the_machine(put, tmp_path):
    source = 'import json, sys\nprint(json.load(open(sys.argv[sys.argv.index("-f") + 1]))["transport"])'
    (tmp_path / "out").mkdir()
    plan = read_plan(put("sockets", source, GOOD), "quick")
    [(_, executed)] = Execution(Target("cpu", "quick", 1), tmp_path / "out", lambda *cell: None).run([plan], 1)
    assert '"ipc\\n"' in executed.read_text(encoding="utf-8")


def test_a_green_notebook_says_how_it_was_run(verdict_on):
    verdict = verdict_on("all_parameters")
    assert (verdict.outcome, verdict.reasons, verdict.compared) == ("passed", (), 1)
    assert (verdict.run.device, verdict.run.level, verdict.run.cards, verdict.run.budget_seconds) == ("cpu", "quick", 2, 30)
    assert 0 < verdict.run.seconds < 60 and verdict.run.stopped is None


def test_a_killed_kernel_is_named_with_its_cell_and_its_log(verdict_on):
    verdict = verdict_on("kills_itself")
    assert verdict.run.stopped == "the kernel died in cell 3; its last log lines are in kills_itself.log"
    assert "last line" in verdict.executed.with_suffix(".log").read_text()
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.later": "missing"})


def test_an_exception_is_told_in_its_first_line_and_the_later_checks_are_missing(verdict_on):
    verdict = verdict_on("colourful")
    assert verdict.reasons[0] == "cell 4 of section all raised ValueError: \x1b[31mred\x1b[0m <script>"
    assert (verdict.outcome, outcomes(verdict)) == ("failed", {"demo.good": "passed", "demo.later": "missing"})


def test_a_cell_that_never_ends_is_counted_as_a_reader_of_the_code_counts(verdict_on):
    verdict = verdict_on("endless")
    assert verdict.run.stopped == "cell 3 had not ended after 4 s"
    assert verdict.reasons[1].startswith("cell 3 of section all raised KeyboardInterrupt")
    assert outcomes(verdict) == {"demo.later": "missing"}


def test_cells_are_told_in_order_and_never_more_than_there_are(folder):
    told = json.loads((folder / "cells.json").read_text())["told"]
    assert [(cell, cells) for name, cell, cells in told if name == "all_parameters"] == [(n, 6) for n in range(1, 7)]
    assert [(cell, cells) for name, cell, cells in told if name == "endless"] == [(n, 5) for n in range(1, 4)]


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


def test_what_a_kernel_left_running_is_killed_at_the_end(kernel, tmp_path):
    watchdog = Watchdog(100, tmp_path / "log")
    watchdog.kernel_started(kernel[0])
    watchdog.close()
    assert all(map(gone, kernel))


def test_a_kernel_that_starts_long_after_the_stop_is_killed(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr("xpulab.harness.watchdog._GRACE_SECONDS", 0.0)
    watchdog = Watchdog(100, tmp_path / "log")
    watchdog.stop("interrupted")
    watchdog._timers[0].join(10)
    watchdog.kernel_started(kernel[0])
    assert gone(kernel[0])
    watchdog.close()


def test_a_kernel_that_does_not_listen_is_killed_after_a_grace(kernel, tmp_path, monkeypatch):
    monkeypatch.setattr("xpulab.harness.watchdog._GRACE_SECONDS", 0.1)
    watchdog = Watchdog(0.1, tmp_path / "log")
    watchdog.cell = 4
    watchdog.kernel_started(kernel[0])
    assert all(map(gone, kernel))
    assert watchdog.reason == "cell 4 had not ended after 0 s"
    watchdog.close()


def test_the_first_reason_stays(tmp_path):
    watchdog = Watchdog(100, tmp_path / "log")
    watchdog.stop("interrupted")
    watchdog.stop("cell 3 had not ended")
    assert watchdog.reason == "interrupted"
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
