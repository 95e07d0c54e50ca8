"""The frame, broken in one place at a time: small notebooks run together by the real command, and what each came to.

What they test is whether green is earned: nothing planned may go missing, nothing may pass that cannot fail, and whatever
happens to a kernel ends in a verdict on its own notebook and on no other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import nbformat
import psutil
import pytest

pytestmark = pytest.mark.integration

# name: (cells, metadata that differs, the notebook's outcome, what its reason says, outcomes of its checks)
SHORT = {"budget": 1}
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
CHILD = "import subprocess, pathlib\nchild = subprocess.Popen(['sleep', '300'])\npathlib.Path(PIDS).write_text(str(child.pid))"


def check(letter, measured=2):
    return f'check.equal("demo.{letter}", {measured}, 2, control=3)'


CASES = {
    "green": ([check("a")], {}, "passed", None, {"demo.a": "passed"}),
    "wrong_value": (['check.below("demo.b", 5.0, 1.0, control=7.0)'], {}, "failed", "demo.b", {"demo.b": "failed"}),
    "early_return": (
        [f"def section():\n    return\n    {check('c')}", f"section()\n{check('d')}"],
        *({}, "failed", "demo.c", {"demo.c": "missing", "demo.d": "passed"}),
    ),
    "control_passes": (['check.equal("demo.e", 2, 2, control=2)'], {}, "failed", "demo.e", {"demo.e": "broken"}),
    "nothing_compared": (['check.skip("demo.f", "no reason")'], {}, "failed", "nothing was compared", {"demo.f": "skipped"}),
    "nan": (['check.below("demo.g", float("nan"), 1.0, control=2.0)'], {}, "failed", "demo.g", {"demo.g": "failed"}),
    "cell_raises": (
        [check("h"), "1 / 0", check("i")],
        *({}, "failed", "cell 4 of section all raised ZeroDivisionError", {"demo.h": "passed", "demo.i": "missing"}),
    ),
    "kernel_dies": (
        ["import os; os.write(2, b'last line\\n'); os._exit(7)", check("j")],
        *({}, "failed", "the kernel died in cell", {"demo.j": "missing"}),
    ),
    "does_not_listen": ([DEAF, check("l")], SHORT, "failed", "had not ended after 8 s", {"demo.l": "missing"}),
    "leaves_a_child": ([CHILD, check("m")], {}, "passed", None, {"demo.m": "passed"}),
    "two_cards_on_a_cpu": ([check("n")], {"cards": 2}, "passed", None, {"demo.n": "passed"}),
    "slow": (["import time; time.sleep(3.2)", check("o")], {"budget": 2}, "passed", None, {"demo.o": "passed"}),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, book):
    """All cases in one run of the command, four at a time: its exit code, output, result and folder."""
    folder = tmp_path_factory.mktemp("frame")
    for name, (cells, metadata, *_) in CASES.items():
        told = [cell.replace("PIDS", repr(str(folder / "child.pid"))) for cell in cells]
        nbformat.write(book(*told, **metadata), folder / f"{name}.ipynb")
    command = [
        sys.executable,
        "-m",
        "xpulab",
        "run",
        "*.ipynb",
        "--device",
        "cpu",
        "--cold",
        "--jobs",
        "4",
        "--time-limit",
        "8",
    ]
    done = subprocess.run(
        [*command, "--out", "out"], cwd=folder, capture_output=True, text=True, timeout=200, env=dict(os.environ)
    )
    return done, json.loads((folder / "out" / "result.json").read_text(encoding="utf-8")), folder


@pytest.mark.parametrize("name", CASES)
def test_a_notebook_comes_to_its_own_outcome_for_its_own_reason(ran, name):
    notebook = next(entry for entry in ran[1]["notebooks"] if entry["name"] == name)
    *_, outcome, reason, checks = CASES[name]
    assert notebook["outcome"] == outcome and (reason or "") in (notebook["reason"] or ""), notebook
    assert (reason is None) is (notebook["reason"] is None), notebook
    assert {check["name"]: check["outcome"] for check in notebook["checks"]} == checks


def test_the_run_is_red_without_a_traceback_in_plain_lines(ran):
    done, result, folder = ran
    assert (done.returncode, result["outcome"]) == (1, "failed")
    assert "Traceback" not in done.stdout + done.stderr and "\x1b" not in done.stdout
    assert "last line" in (folder / "out" / "notebooks" / "kernel_dies.log").read_text()


def test_no_kernel_is_left_and_no_child_of_one(ran):
    pid, out = int((ran[2] / "child.pid").read_text()), str(ran[2])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == out] == []
