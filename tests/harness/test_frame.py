"""The frame, broken in one place at a time: small notebooks run together by the real command, and what each came to.

What they test is whether green is earned: nothing planned may go missing, nothing may pass that cannot fail, and whatever
happens to a kernel ends in a verdict on its own notebook and on no other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import psutil
import pytest

pytestmark = pytest.mark.integration

# name: (cells, metadata that differs, the notebook's outcome, what its reason says, outcomes of its checks)
SHORT = {"budget": 1}
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass"
CHILD = "import subprocess, pathlib\nchild = subprocess.Popen(['sleep', '300'])\npathlib.Path(PIDS).write_text(str(child.pid))"


MEET = """
import pathlib, time
pathlib.Path("{me}.here").touch()
until = time.monotonic() + 60
while not pathlib.Path("{other}.here").exists() and time.monotonic() < until:
    time.sleep(0.05)
check.equal("demo.met_{me}", pathlib.Path("{other}.here").exists(), True, control=False)
"""
TEMPORARY = 'import tempfile\nprint("made", tempfile.mkdtemp())'
SHOW = 'print(f"{device} {level} {cards}")'


def kernel(name):
    return {"name": name, "display_name": name, "language": "python"}


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
    "twin_a": ([MEET.format(me="a", other="b")], {"budget": 90}, "passed", None, {"demo.met_a": "passed"}),
    "twin_b": ([MEET.format(me="b", other="a")], {"budget": 90}, "passed", None, {"demo.met_b": "passed"}),
    "parameters": ([SHOW, check("p"), TEMPORARY], {}, "passed", None, {"demo.p": "passed"}),
    "one_parameter": (
        ['level, cards = "mine", 7', SHOW, check("q")],
        *({"parameters": 'device = "auto"'}, "passed", None, {"demo.q": "passed"}),
    ),
    "unknown_kernel": ([check("r")], {"kernel": kernel("nowhere")}, "failed", "nowhere", {"demo.r": "missing"}),
    "no_kernel": ([check("s")], {"kernel": None}, "passed", None, {"demo.s": "passed"}),
    "kernel_ends": (
        [check("t")],
        *({"kernel": kernel("ends")}, "failed", "Kernel died before replying", {"demo.t": "missing"}),
    ),
    "kernel_hangs": (
        [check("u")],
        *({"kernel": kernel("hangs"), "budget": 0.25}, "failed", "not ready after 2 s", {"demo.u": "missing"}),
    ),
    "slow": (["import time; time.sleep(3.2)", check("o")], {"budget": 2}, "passed", None, {"demo.o": "passed"}),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, book):
    """All cases in one run of the command, four at a time: its exit code, output, result and folder."""
    folder = tmp_path_factory.mktemp("frame")
    for name, (cells, metadata, *_) in CASES.items():
        told = [cell.replace("PIDS", repr(str(folder / "child.pid"))) for cell in cells]
        nbformat.write(book(*told, **metadata), folder / f"{name}.ipynb")
    for name, argv in {"ends": ["false"], "hangs": ["sleep", "60"]}.items():
        spec = folder / "kernels" / name / "kernel.json"
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps({"argv": argv, "display_name": name, "language": "python"}))
    environment = {**os.environ, "JUPYTER_PATH": str(folder)}
    options = ["--device", "cpu", "--cold", "--jobs", "4", "--time-limit", "8", "--out", "out"]
    command = [sys.executable, "-m", "xpulab", "run", "*.ipynb", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, env=environment)
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


def test_the_parameters_that_a_notebook_declares_are_injected_and_its_temporary_files_are_gone(ran):
    executed = ran[2] / "out" / "notebooks"
    one = (executed / "one_parameter.ipynb").read_text()
    assert '"cpu mine 7\\n"' in one and "level =" not in one
    all_of_them = (executed / "parameters.ipynb").read_text()
    assert '"cpu quick 1\\n"' in all_of_them
    made = Path(re.search(r"made (\S+?)\\n", all_of_them)[1])
    assert made.parent.name.startswith("xpulab-") and not made.parent.exists()
