"""The frame, broken in one place at a time: small notebooks run together by the real command, and what each came to.

What they test is whether green is earned: nothing planned may go missing, nothing may pass that cannot fail, and whatever
happens to a kernel ends in a verdict on its own notebook and on no other.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import jsonschema
import nbformat
import psutil
import pytest

from xpulab import files

pytestmark = pytest.mark.integration

# name: (cells, metadata that differs, the notebook's outcome, what its reason says, outcomes of its checks)
CASES = {
    "green": (['check.equal("demo.a", 2, 2, control=3)'], {}, "passed", None, {"demo.a": "passed"}),
    "wrong_value": (
        ['check.below("demo.b", 5.0, 1.0, control=7.0)'],
        {},
        "failed",
        "demo.b",
        {"demo.b": "failed"},
    ),
    "early_return": (
        [
            'def section():\n    return\n    check.equal("demo.c", 2, 2, control=3)',
            'section()\ncheck.equal("demo.d", 2, 2, control=3)',
        ],
        {},
        "failed",
        "demo.c",
        {"demo.c": "missing", "demo.d": "passed"},
    ),
    "control_passes": (['check.equal("demo.e", 2, 2, control=2)'], {}, "failed", "demo.e", {"demo.e": "broken"}),
    "nothing_compared": (['check.skip("demo.f", "no reason")'], {}, "failed", "nothing was compared", {"demo.f": "skipped"}),
    "nan": (['check.below("demo.g", float("nan"), 1.0, control=2.0)'], {}, "failed", "demo.g", {"demo.g": "failed"}),
    "cell_raises": (
        ['check.equal("demo.h", 2, 2, control=3)', "1 / 0", 'check.equal("demo.i", 2, 2, control=3)'],
        {},
        "failed",
        "cell 4 of section all raised ZeroDivisionError",
        {"demo.h": "passed", "demo.i": "missing"},
    ),
    "kernel_dies": (
        ["import os; os._exit(7)", 'check.equal("demo.j", 2, 2, control=3)'],
        {},
        "failed",
        "the kernel died in cell",
        {"demo.j": "missing"},
    ),
    "never_ends": (
        ["while True:\n    pass", 'check.equal("demo.k", 2, 2, control=3)'],
        {"budget_seconds": {"smoke": 0.8, "quick": 0.8, "standard": 1}},
        "failed",
        "had not ended after 4 s",
        {"demo.k": "missing"},
    ),
    "never_ends_and_does_not_listen": (
        [
            "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True:\n    pass",
            'check.equal("demo.l", 2, 2, control=3)',
        ],
        {"budget_seconds": {"smoke": 0.8, "quick": 0.8, "standard": 1}},
        "failed",
        "had not ended after 4 s",
        {"demo.l": "missing"},
    ),
    "leaves_a_child": (
        [
            "import subprocess, pathlib\n"
            "child = subprocess.Popen(['sleep', '300'])\n"
            "pathlib.Path(PIDS).write_text(str(child.pid))",
            'check.equal("demo.m", 2, 2, control=3)',
        ],
        {},
        "passed",
        None,
        {"demo.m": "passed"},
    ),
    "no_such_kernel": (
        ['check.equal("demo.p", 2, 2, control=3)'],
        {"kernel": {"name": "no-such-kernel", "display_name": "None", "language": "python"}},
        "failed",
        "it could not be run: NoSuchKernel",
        {"demo.p": "missing"},
    ),
    "two_cards_on_a_cpu": (['check.equal("demo.n", 2, 2, control=3)'], {"cards": 2}, "passed", None, {"demo.n": "passed"}),
    "slow": (
        ["import time; time.sleep(4.5)", 'check.equal("demo.o", 2, 2, control=3)'],
        {"budget_seconds": {"smoke": 3, "quick": 3, "standard": 3}},
        "passed",
        None,
        {"demo.o": "passed"},
    ),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory, book):
    """All cases in one run of the command, four at a time: its exit code, output, result and folder."""
    folder = tmp_path_factory.mktemp("frame")
    for name, (cells, metadata, *_) in CASES.items():
        told = [cell.replace("PIDS", repr(str(folder / "child.pid"))) for cell in cells]
        nbformat.write(book(*told, **metadata), folder / f"{name}.ipynb")
    command = [sys.executable, "-m", "xpulab", "run", "*.ipynb", "--device", "cpu", "--cold", "--jobs", "4", "--out", "out"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200, env=dict(os.environ))
    return done, json.loads((folder / "out" / "result.json").read_text(encoding="utf-8")), folder


@pytest.fixture(params=CASES)
def case(request, ran):
    notebook = next(entry for entry in ran[1]["notebooks"] if entry["name"] == request.param)
    return notebook, *CASES[request.param][2:]


def test_a_notebook_comes_to_its_own_outcome(case):
    notebook, outcome, *_ = case
    assert notebook["outcome"] == outcome, notebook


def test_its_reason_names_what_happened(case):
    notebook, _, reason, _ = case
    assert (notebook["reason"] is None) if reason is None else (reason in notebook["reason"]), notebook["reason"]


def test_its_checks_have_their_outcomes(case):
    notebook, _, _, outcomes = case
    found = {check["name"]: check["outcome"] for check in notebook["checks"]}
    assert {name: found[name] for name in outcomes} == outcomes


def test_the_run_is_red_without_a_traceback(ran):
    done, result, _ = ran
    assert (done.returncode, result["outcome"]) == (1, "failed")
    assert "Traceback" not in done.stdout + done.stderr


def test_the_result_fits_its_schema(ran):
    schema = json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(ran[1])


def test_progress_is_plain_lines_when_nobody_watches(ran):
    assert "\x1b" not in ran[0].stdout
    assert "green: passed, 1 of 1 checks compared" in ran[0].stdout


def test_a_child_that_a_notebook_left_behind_is_gone(ran):
    pid = int((ran[2] / "child.pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_no_kernel_is_left(ran):
    out = str(ran[2])
    assert [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == out] == []


def test_a_dead_kernel_leaves_a_log_to_read(ran):
    assert (ran[2] / "out" / "notebooks" / "kernel_dies.log").exists()


def test_an_overrun_is_noted_and_not_judged(ran):
    slow = next(entry for entry in ran[1]["notebooks"] if entry["name"] == "slow")
    assert "its budget is" in slow["notes"][0]


def test_the_page_needs_no_other_file_and_names_every_check(ran):
    page = (ran[2] / "out" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page and "<link" not in page and "@import" not in page
    assert [name for *_, outcomes in CASES.values() for name in outcomes if name not in page] == []


def test_junit_counts_what_the_result_holds(ran):
    from xml.etree import ElementTree

    root = ElementTree.parse(ran[2] / "out" / "junit.xml").getroot()
    outcomes = [check["outcome"] for notebook in ran[1]["notebooks"] for check in notebook["checks"]]
    assert sum(int(suite.get("failures")) for suite in root) == outcomes.count("failed")
    assert sum(int(suite.get("skipped")) for suite in root) == outcomes.count("skipped")
