"""The current folder is data: a file there named json.py, typer.py or paddle.py, or a folder xpulab/, is never imported."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from tests.conftest import make, make_hostile, save
from xpulab import cli
from xpulab.child import python_module

INSTALLED = str(Path(sys.executable).with_name("xpulab"))
NOTEBOOK = """import json, numpy, typer
assert not any("hostile" in str(getattr(module, "__file__", "")) for module in (json, numpy, typer))
check.equal("shown.two", 2, 2, control=3)"""
LAUNCHED = """from xpulab import ranks
def work():
    import json, typer, numpy
    return numpy.__version__
check.equal("shown.two", len(list(ranks.run(work, 2, launch=True))), 2, control=3)"""


@pytest.fixture
def started(tmp_path):
    """started(command, variables) runs it in a folder of hostile names: its exit code and output. None of them was imported."""
    folder = tmp_path / "hostile"
    folder.mkdir()
    executed = make_hostile(folder)
    reading, writing = os.pipe()  # an input that stays open: a node's task ends with it

    def run(*command, **variables):
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path), **variables},
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
        )
        assert not executed.exists(), executed.read_text() + done.stdout
        return done.returncode, done.stdout

    yield run
    os.close(reading)
    os.close(writing)


def commands():
    """The words of every command, those of groups too."""
    for name, each in typer.main.get_command(cli.app).commands.items():
        yield from ([name, inner] for inner in getattr(each, "commands", ())) if hasattr(each, "commands") else [[name]]


def test_hostile_names_are_what_python_imports_without_care(tmp_path):
    """A control of the fixture, on what none of our commands does."""
    executed = make_hostile(tmp_path)
    subprocess.run([sys.executable, "-m", "xpulab", "--version"], cwd=tmp_path, timeout=60)
    assert executed.read_text() == "runpy\n" or executed.read_text() == "xpulab\n"


@pytest.mark.integration
@pytest.mark.parametrize("start", [[INSTALLED], python_module("xpulab")], ids=["as typed", "as we start it"])
def test_no_command_imports_from_the_current_folder_for_its_help(started, start):
    lines = [shlex.join([*start, *words, "--help"]) + " >/dev/null || exit 1 &" for words in commands()]
    assert len(lines) > 15
    for part in (lines[:8], lines[8:16], lines[16:]):
        assert started("bash", "-c", "\n".join([*part, "wait"]))[0] == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("cell", "options"),
    [(NOTEBOOK, ["--cold"]), (NOTEBOOK, []), (LAUNCHED, ["--cold"])],
    ids=["a cold kernel", "a warm kernel", "launched ranks"],
)
def test_a_run_imports_nothing_from_the_current_folder(started, tmp_path, cell, options):
    path = save(make(cell, level="smoke", capabilities=["shown"], budget=60), tmp_path / "shown.ipynb")
    code, printed = started(INSTALLED, "run", str(path), "--device", "cpu", *options, "--out", str(tmp_path / "out"))
    assert code == 0, printed


@pytest.mark.integration
def test_jupyterlab_and_pip_are_not_those_of_the_current_folder(started, tmp_path):
    code, printed = started(INSTALLED, "lab", "--version", JUPYTER_CONFIG_DIR=str(tmp_path / "jupyter"))
    assert code == 0 and printed.strip()[0].isdigit(), printed
    code, printed = started(INSTALLED, "model", "smollm2-135m", PIP_NO_INDEX="1", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert code == 2 and "pip cannot download it" in printed


@pytest.mark.integration
def test_a_node_of_a_fleet_imports_nothing_from_its_current_folder(started):
    node = [*python_module("xpulab"), "fleet"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert started(*node, "exchange", f"127.0.0.1:{port}", "1", "1", "120")[0] == 0
    run = ["00_environment", "--level", "smoke", "--check", "install.one-framework", "--device", "cpu"]
    code, printed = started(*node, "task", "--node", "node7", "--", *run)
    assert code == 0, printed
