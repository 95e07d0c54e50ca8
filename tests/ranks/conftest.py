"""What the tests of ranks share: processes that must end, and scripts that run ranks in a process of their own."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from xpulab import warm

SECONDS = 60.0
"""The longest that a test waits for something that happens within a few seconds on a quiet machine."""


@pytest.fixture(autouse=True)
def fork_server_in_environment(fork_server: warm.ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks find the fork server as in a notebook that the harness runs; the tests of other folders do not."""
    monkeypatch.setenv(warm.ADDRESS, fork_server.address)


@pytest.fixture
def own_fork_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """No fork server is in the environment: ranks start one of their own, which imports just Paddle."""
    monkeypatch.delenv(warm.ADDRESS)
    monkeypatch.setattr(warm, "PRELOAD", ("paddle",))


class NumberPipe:
    """A named pipe: processes write numbers to it, and a test waits for them instead of sleeping."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR)
        self._rest = b""

    def numbers(self, count: int) -> list[int]:
        """The next `count` numbers that are written."""
        while self._rest.count(b"\n") < count:
            assert select.select([self._fd], [], [], SECONDS)[0], f"only {self._rest!r} was written"
            self._rest += os.read(self._fd, 4096)
        *found, self._rest = self._rest.split(b"\n", count)
        return [int(each) for each in found]

    def processes(self, count: int) -> list[psutil.Process]:
        """The next `count` numbers as processes that run now."""
        return [psutil.Process(pid) for pid in self.numbers(count)]

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[NumberPipe]:
    """Write with: open(pipe.path, "w").write(f"{os.getpid()}\\n")."""
    opened = NumberPipe(tmp_path / "pipe")
    yield opened
    opened.close()


@pytest.fixture
def all_end() -> Callable[[list[psutil.Process]], None]:
    """all_end(processes) fails unless all of them end."""

    def check(processes: list[psutil.Process]) -> None:
        _, alive = psutil.wait_procs(processes, timeout=SECONDS)
        for process in alive:
            process.kill()
        assert not alive

    return check


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """notebook(source, *arguments) runs Python in a process of its own, which is killed after the test."""
    started: list[subprocess.Popen] = []

    def run(source: str, *arguments: str, **variables: str) -> subprocess.Popen:
        script = tmp_path / "notebook.py"
        script.write_text(textwrap.dedent(source))
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1", **variables},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()
