"""The folder for all temporary files of a run, of its kernels and of their ranks; it goes when the run does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xpulab import files
from xpulab.child import Child
from xpulab.harness import leftovers

_END_SECONDS = 30.0
_PATH_BYTES = 32
"""Sockets of fork servers that kernels start lie three folders deeper, and a socket's path has 107 bytes at most."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block, or when this process is killed; with it go all processes of the run.

    A process is one of the run's when warm.RUN_FOLDER holds the folder's path in its environment.
    What dead runs left is removed first.
    """
    leftovers.remove_of_dead_runs()
    starting = Path(tempfile.mkdtemp(prefix=leftovers.STARTING, dir=_parent()))
    folder = starting.with_name(starting.name.replace(leftovers.STARTING, leftovers.PREFIX))
    with (starting / leftovers.LOCK).open("w+b") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: no run takes this one for dead
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        starting.rename(folder)
        watcher = _watcher_of(folder)
        try:
            yield folder
        finally:
            _end(watcher, folder)


def _parent() -> str:
    given = tempfile.gettempdir()
    return given if len(os.fsencode(given)) <= _PATH_BYTES else "/tmp"


def _watcher_of(folder: Path) -> Child:
    """The process that removes what is left. It is in no run and no session of ours, so that what ends us does not end it."""
    return Child(
        [sys.executable, "-S", "-m", leftovers.__name__, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": str(files.ROOT), "TMPDIR": str(folder.parent)},
    )


def _end(watcher: Child, folder: Path) -> None:
    """Let the watcher remove what is left, and do it here when it was killed."""
    watcher.close_input(leftovers.ENDED_WELL)
    watcher.end(_END_SECONDS)
    if watcher.wait() != 0:
        leftovers.remove(folder)
