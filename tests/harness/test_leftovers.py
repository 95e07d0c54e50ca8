"""Of a run that has ended, or was killed, nothing stays: the process beside it removes what is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import psutil
import pytest

from xpulab.harness.run_folder import run_folder
from xpulab.warm import RUN_FOLDER

SECONDS = 60


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """An empty folder for temporary files."""
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def marked():
    """Starts a process of a run, in a session of its own."""
    started = []

    def start(folder):
        started.append(subprocess.Popen(["sleep", "100"], env={**os.environ, RUN_FOLDER: str(folder)}, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_the_folder_and_the_processes_go_with_the_block(marked):
    with run_folder() as folder:
        process = marked(folder)
        (folder / "file").touch()
    assert process.wait(SECONDS) == -signal.SIGKILL
    assert not folder.exists()


@pytest.mark.integration
def test_when_the_run_is_killed_the_process_beside_it_removes_all(temporary, marked):
    source = "from xpulab.harness.run_folder import run_folder\n"
    source += "with run_folder() as folder:\n    print(folder, flush=True)\n    input()"
    command = [sys.executable, "-c", source]
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(temporary)}, stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as run:
        folder = run.stdout.readline().decode().strip()
        (watcher,) = psutil.Process(run.pid).children()
        process = marked(folder)
        run.kill()
    watcher.wait(SECONDS)
    assert process.wait(SECONDS) == -signal.SIGKILL
    assert list(temporary.iterdir()) == []
