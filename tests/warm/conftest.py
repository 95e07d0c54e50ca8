"""A parent that imports next to nothing, children of it, and the end of processes as an event."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from xpulab import warm

HERE = Path(__file__).parent


class Started:
    """A child with its standard output and error as text."""

    def __init__(self, address: str, entry: str, payload: bytes = b"", cwd: object = "/", **environment: str) -> None:
        path = os.pathsep.join((str(HERE), environment.pop("PYTHONPATH", "")))
        stdout, stderr = os.pipe(), os.pipe()
        try:
            self.child = warm.fork(
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
        """Status, standard output, standard error, once it has ended and nobody else holds them."""
        return self.child.wait(60), self.stdout.read(), self.stderr.read()


@pytest.fixture(scope="module")
def parent() -> Iterator[warm.ForkServer]:
    """A parent that has imported json."""
    with warm.ForkServer(("json",)) as running:
        yield running


@pytest.fixture
def start(parent: warm.ForkServer) -> Iterator[Callable[..., Started]]:
    """start(entry, payload, cwd=..., NAME="value") forks a child of `parent`, or of the one given as address=...."""
    children = []

    def started(entry: str, payload: bytes = b"", address: str | None = None, **options: object) -> Started:
        children.append(Started(address or parent.address, entry, payload, **options))
        return children[-1]

    yield started
    for one in children:
        one.child.close()
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
