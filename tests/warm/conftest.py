"""A fork server that imports next to nothing, its workers, and the end of processes as an event."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xpulab import warm

HERE = Path(__file__).parent


class Started:
    """A worker with its standard output and error as text."""

    def __init__(self, address: str, entry: str, payload: bytes = b"", cwd: object = "/", **environment: str) -> None:
        path = os.pathsep.join((str(HERE), environment.pop("PYTHONPATH", "")))
        stdout, stderr = os.pipe(), os.pipe()
        try:
            self.worker = warm.fork(
                address,
                entry if ":" in entry else f"entries:{entry}",
                payload,
                environment={"PATH": os.environ["PATH"], "PYTHONPATH": path, **environment},
                cwd=cwd,
                stdout=stdout[1],
                stderr=stderr[1],
            )
        finally:
            os.close(stdout[1])
            os.close(stderr[1])
            self.stdout, self.stderr = (os.fdopen(pipe[0], "r") for pipe in (stdout, stderr))

    def ended(self) -> tuple[int | None, str, str]:
        """Status, standard output, standard error, once it has ended and no other process holds them."""
        return self.worker.wait(60), self.stdout.read(), self.stderr.read()


@pytest.fixture(scope="module")
def fork_server() -> Iterator[warm.ForkServer]:
    """A fork server that has imported json."""
    with warm.ForkServer(("json",)) as running:
        yield running


@pytest.fixture
def start(fork_server: warm.ForkServer) -> Iterator[Callable[..., Started]]:
    """start(entry, payload, cwd=..., NAME="value") forks a worker of `fork_server`, or of the one at address=...."""
    workers = []

    def started(entry: str, payload: bytes = b"", address: str | None = None, **options: object) -> Started:
        workers.append(Started(address or fork_server.address, entry, payload, **options))
        return workers[-1]

    yield started
    for one in workers:
        one.worker.close()
        one.stdout.close()
        one.stderr.close()


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """gone(pid): whether the process ends within a minute; waits for it."""

    def ended(pid: int) -> bool:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([pidfd], [], [], 60)[0])
        finally:
            os.close(pidfd)

    return ended
