"""How a run looks while it goes on, how it ends, and what is left when it is ended from outside."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from xml.etree import ElementTree

import jsonschema
import psutil
import pytest
from typer.testing import CliRunner

from tests.conftest import make, save
from xpulab import cli, files, warm
from xpulab.cli import chosen

pytestmark = pytest.mark.integration

WHO_FORKED = """
import os, psutil
print("warm" if "xpulab.warm" in " ".join(psutil.Process(os.getppid()).cmdline()) else "cold")
"""
GOOD = 'check.equal("{name}.good", 2, 2, control=3, means="two is two")'
ENDLESS = "import subprocess, time\nchild = subprocess.Popen(['sleep', '300'])\nwhile True:\n    time.sleep(0.01)"
COMMAND = [sys.executable, "-m", "xpulab"]


def put(folder, name, *cells, **changed):
    """Saves a small notebook of ours, whose checks belong to the capability `name`."""
    cells = [cell.replace("{name}", name) for cell in cells]
    changed = {"title": f"On {name}", "capabilities": [name], "budget": 30, **changed}
    save(make(*cells, level="smoke", **changed), folder / f"{name}.ipynb")


def name_of(process):
    """What a process is called; "" when it is gone."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def results(folder):
    """What result.json holds, which fits its schema."""
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    schema = json.loads(files.data("schema", "result.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(result)
    return result


# --------------------------------------------------------------------------------------------------------- in a terminal


@pytest.fixture(scope="module")
def terminal(tmp_path_factory):
    """A green run in a terminal: its exit code, what it wrote there, and its folder."""
    folder = tmp_path_factory.mktemp("terminal")
    put(folder, "shown", WHO_FORKED, GOOD)
    ours, theirs = pty.openpty()
    arguments = ["run", "shown.ipynb", "--device", "cpu", "--cold", "--out", "out"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "150"}
    with subprocess.Popen(COMMAND + arguments, cwd=folder, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        written, until = b"", time.monotonic() + 100
        while time.monotonic() < until and select.select([ours], [], [], 100)[0]:
            try:
                written += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        code = process.wait(10)
    os.close(ours)
    return code, written.decode(), folder


def test_a_green_run_exits_with_0_and_ends_with_the_verdict(terminal):
    code, written, folder = terminal
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert (code, results(folder / "out")["outcome"]) == (0, "passed")
    assert "shown: passed, 1 of 1 checks compared" in plain
    assert "green: 1 of 1 notebooks passed" in plain and f"report: {folder / 'out' / 'index.html'}" in plain
    assert 'xpulab_run_green{cards="1",device="cpu",level="quick"} 1.0' in (folder / "out" / "metrics.prom").read_text()


def gate(folder, *arguments):
    """The exit code and output of the gate, and the modules that it imported."""
    command = [sys.executable, "-X", "importtime", "-m", "xpulab", "gate", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_the_gate_reads_the_verdict_of_that_run_and_imports_no_framework(terminal):
    code, printed, modules = gate(terminal[2])
    assert code == 0
    assert re.fullmatch(r"xpulab: green 0\.\d h ago, 1 of 1 checks at level quick on cpu\n", printed)
    assert "xpulab.fleet.gate" in modules and not {"paddle", "numpy", "nbformat"} & modules


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_kernels_are_forked_from_a_warm_process_unless_they_shall_start_cold(terminal, tmp_path, start):
    folder = terminal[2]
    if start == "warm":
        put(tmp_path, "shown", WHO_FORKED, GOOD)
        elsewhere = {**os.environ, warm.ADDRESS: str(tmp_path / "socket")}  # as in a notebook with a warm kernel of its own
        command = [*COMMAND, "run", "shown.ipynb", "--device", "cpu", "--out", "out"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, env=elsewhere)
        assert done.returncode == 0, done.stdout + done.stderr
        folder = tmp_path
    assert f'"{start}\\n"' in (folder / "out" / "notebooks" / "shown.ipynb").read_text(encoding="utf-8")


# ---------------------------------------------------------------------------------------------------- ended from outside


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run of three, one at a time, that gets SIGTERM in the second: exit code, output, processes it had, folder."""
    folder = tmp_path_factory.mktemp("ended")
    put(folder, "first", GOOD, budget=40)
    put(folder, "second", ENDLESS, GOOD, budget=30)
    put(folder, "third", GOOD, budget=20)
    command = [*COMMAND, "run", "*.ipynb", "--device", "cpu", "--cold", "--jobs", "1", "--out", "out"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        family, until = [], time.monotonic() + 100
        while time.monotonic() < until and "sleep" not in map(name_of, family):
            time.sleep(0.05)
            family = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        written = process.stdout.read()
        code = process.wait(60)
    return code, written, family, folder


def test_an_ended_run_exits_with_130_and_leaves_no_process(ended):
    code, written, family, _ = ended
    assert code == 130 and "report: " in written, written
    assert "xpulab: interrupted" in written.splitlines() and "Traceback" not in written
    assert len(family) >= 2, "the kernel and its child were not seen"
    assert psutil.wait_procs(family, timeout=10)[1] == []


def test_an_ended_run_reports_what_has_finished_and_what_is_missing(ended):
    entries = {entry["name"]: entry for entry in results(ended[3] / "out")["notebooks"]}
    assert [entries[name]["outcome"] for name in ("first", "second", "third")] == ["passed", "failed", "missing"]
    assert entries["second"]["reason"].startswith("interrupted")
    assert entries["third"]["reason"] == "interrupted before it started"
    assert [check["outcome"] for name in entries for check in entries[name]["checks"]] == ["passed", "missing", "missing"]
    suites = ElementTree.parse(ended[3] / "out" / "junit.xml").getroot()
    assert [int(suite.get("errors")) for suite in suites] == [0, 1, 1]
    page = (ended[3] / "out" / "index.html").read_text(encoding="utf-8")
    assert "NOT READY" in page and "third.good" in page


# -------------------------------------------------------------------------------------------------------------- pieces


def test_list_names_every_notebook_and_every_check(tmp_path, monkeypatch):
    put(tmp_path, "one", GOOD, 'check.equal("{name}.more", 2, 2, control=3)', budget=7)
    put(tmp_path, "two", GOOD)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["run", "--list", "*.ipynb"])
    assert (done.exit_code, done.stderr) == (0, "")
    listed = [line.split()[0] for line in done.stdout.splitlines()]
    assert listed == ["one", "all", "one.good", "one.more", "two", "all", "two.good"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.ipynb", "two.ipynb"]


@pytest.mark.parametrize(
    ("device", "notebooks", "cards", "jobs"),
    [("cpu", 2, 1, 2), ("cpu", 100, 1, 6), ("sim", 100, 2, 6), ("xpu", 100, 1, 1), ("gpu", 2, 2, 2), ("xpu", 100, 8, 4)],
)
def test_notebooks_share_the_cores_but_never_a_card(monkeypatch, device, notebooks, cards, jobs):
    monkeypatch.setattr("xpulab.records.usable.whole_cores", lambda: 4)
    assert chosen.jobs(device, notebooks, cards) == jobs


def test_a_device_without_compiler_says_what_is_missing(tmp_path, monkeypatch):
    put(tmp_path, "one", GOOD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XPULAB_SIM_CACHE", str(tmp_path / "cache"))
    done = CliRunner().invoke(cli.app, ["run", "one.ipynb", "--device", "sim", "--out", "out"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "C++ compiler" in done.stderr and "no-such-compiler" in done.stderr
    assert not (tmp_path / "out").exists()
