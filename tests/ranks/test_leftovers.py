"""No process and no file is left, however a run ends, and whoever ends it."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
from pathlib import Path

import cloudpickle
import psutil
import pytest

from xpulab import ranks

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def write_numbers(path: str, *pids: int) -> None:
    with open(path, "a") as file:
        for pid in pids or [os.getpid()]:
            file.write(f"{pid}\n")


def starts_helpers(path: str) -> None:
    """A child in this rank's group, one in a session of its own, and one whose parent has ended."""
    near = subprocess.Popen(["sleep", "1000"])
    far = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    orphan = subprocess.run(
        ["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    write_numbers(path, os.getpid(), near.pid, far.pid, int(orphan.stdout))


def after_it(how: str) -> None:
    if how == "raises":
        raise ValueError
    if how == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "hangs":
        signal.pause()


@pytest.mark.parametrize("how", ["returns", "raises", "is killed", "hangs"])
def test_what_a_rank_has_started_ends_with_the_run(pipe, all_end, how: str):
    def work() -> None:
        starts_helpers(path)
        after_it(how)

    path = pipe.path
    with contextlib.nullcontext() if how == "returns" else pytest.raises(ranks.RanksFailed):
        ranks.run(work, 1, time_limit=1.0 if how == "hangs" else 60.0)

    all_end([psutil.Process(pid) for pid in pipe.numbers(4) if psutil.pid_exists(pid)])


def test_no_folder_is_left():
    (folder,) = ranks.run(lambda: os.environ["PADDLE_LOG_DIR"], 1)

    assert not Path(folder).exists()


def test_no_folder_is_left_of_a_run_that_failed():
    def work() -> None:
        raise ValueError(os.environ["PADDLE_LOG_DIR"])

    with pytest.raises(ranks.RanksFailed) as failed:
        ranks.run(work, 1)

    folder = failed.value.reports[0].reason.removeprefix("ValueError: ")
    assert folder.startswith("/")
    assert not Path(folder).exists()


NOTEBOOK = (
    inspect.getsource(write_numbers)
    + """
import os, signal, sys
from xpulab import warm
from xpulab import ranks

warm.PRELOAD = ("paddle",)

def work(path):
    ranks.step("entered step 1")
    write_numbers(path)
    while True:
        signal.pause()

write_numbers(sys.argv[1])
ranks.run(work, 2, sys.argv[1], launch=sys.argv[2] == "launched", time_limit=250)
"""
)


@pytest.mark.parametrize("way", ["forked", "launched"])
def test_an_interrupt_ends_the_ranks_at_once_and_shows_where_they_were(notebook, pipe, all_end, way: str):
    process = notebook(NOTEBOOK, pipe.path, way)
    _, *ranks_of_it = pipe.processes(3)

    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)

    all_end(ranks_of_it)
    assert process.returncode != 0
    assert "RanksInterrupted: " in printed
    assert printed.count(", in work") >= 2
    assert printed.count("last step: entered step 1") == 2


@pytest.mark.parametrize("way", ["forked", "launched"])
def test_ranks_end_when_the_notebook_is_killed(own_fork_server, notebook, pipe, all_end, tmp_path: Path, way: str):
    (tmp_path / "scratch").mkdir()
    process = notebook(NOTEBOOK, pipe.path, way, TMPDIR=str(tmp_path / "scratch"))
    _, *ranks_of_it = pipe.processes(3)
    all_of_it = [*ranks_of_it, *psutil.Process(process.pid).children(recursive=True)]

    process.kill()

    all_end(all_of_it)
    assert way == "launched" or not list((tmp_path / "scratch").iterdir())


def test_an_interrupt_while_the_fork_server_starts_ends_it(own_fork_server, notebook, pipe, tmp_path: Path):
    (tmp_path / "scratch").mkdir()
    process = notebook(NOTEBOOK, pipe.path, "forked", TMPDIR=str(tmp_path / "scratch"))
    pipe.numbers(1)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGINT
    assert not list((tmp_path / "scratch").iterdir())


def test_a_fork_server_that_was_killed_is_replaced(own_fork_server):
    def fork_server() -> int:
        return psutil.Process(os.getppid()).ppid()

    (first,) = ranks.run(fork_server, 1)
    os.kill(first, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(first)], timeout=60)

    assert ranks.run(fork_server, 1) != [first]
