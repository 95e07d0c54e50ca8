"""The folder of a run, and what a killed run leaves: processes, the folder, simulated cards' memory.

A run keeps all temporary files of its kernels and ranks in one folder, xpulab-run-XXXX in the folder for temporary files, and
locks a file there while it lives: the operating system opens the lock when the process ends, however it ends. All processes of
a run inherit the variable warm.RUN_FOLDER, which names the folder. So what a dead run left is found without any list, and what
a living run uses is never touched.

    python -m xpulab.harness.run_folder FOLDER

is the process that waits beside each run. Its standard input ends with the run; then it removes what is left. Where it was
killed too, the next run removes it. It imports neither Paddle nor a package that is not Python's own.

Paddle's own segments, /dev/shm/paddle_PID_N_RANDOM, stay when their process is killed. That PID has ended does not mean that
nobody reads them: a tensor in a queue of paddle.incubate.multiprocessing is read after its sender has ended (measured with
3.3.1), and a container that shares /dev/shm has process ids of its own, and mostly the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from xpulab.warm import RUN_FOLDER

if TYPE_CHECKING:
    from xpulab.child import Child

PREFIX = "xpulab-run-"
STARTING = "xpulab-starting-"
"""The prefix of a folder that is not locked yet."""
LOCK = "lock"

_STARTING_SECONDS = 3600.0
"""A folder whose lock was not taken within so long belongs to a run that was killed in between."""
_KILL_SECONDS = 10.0
_END_SECONDS = 30.0
_POLL_SECONDS = 0.05
_PATH_BYTES = 32
"""Sockets of fork servers that kernels start lie three folders deeper, and a socket's path has 107 bytes at most."""
_SCANS_WITHOUT = 3
"""So many times in a row no process may be found: one that just replaces its program shows no variables for a moment."""
ENDED_WELL = b"ended"


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block, or when this process is killed; with it go all processes of the run.

    A process is one of the run's when warm.RUN_FOLDER holds the folder's path in its environment.
    What dead runs left is removed first.
    """
    remove_of_dead_runs()
    starting = Path(tempfile.mkdtemp(prefix=STARTING, dir=_short(tempfile.gettempdir())))
    folder = starting.with_name(starting.name.replace(STARTING, PREFIX))
    with (starting / LOCK).open("w+b") as lock:
        with contextlib.suppress(OSError):  # a file system without locks: no run takes this one for dead
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        starting.rename(folder)
        watcher = _watcher_of(folder)
        try:
            yield folder
        finally:
            _end(watcher, folder)


def _short(parent: str) -> str:
    return parent if len(os.fsencode(parent)) <= _PATH_BYTES else "/tmp"


def _watcher_of(folder: Path) -> Child:
    """The process that removes what is left. It is in no run and no session of ours, so that what ends us does not end it."""
    from xpulab import files
    from xpulab.child import Child  # not in the watcher itself, which starts in a tenth of the time

    return Child(
        [sys.executable, "-S", "-m", "xpulab.harness.run_folder", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": str(files.ROOT), "TMPDIR": str(folder.parent)},
    )


def _end(watcher: Child, folder: Path) -> None:
    """Let the watcher remove what is left, and do it here when it was killed."""
    watcher.close_input(ENDED_WELL)
    watcher.end(_END_SECONDS)
    if watcher.wait() != 0:
        remove(folder)


def main(folder: str) -> None:
    """Wait until the run has ended, then leave nothing of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those are for the run; this process ends right after it
    told = sys.stdin.buffer.read()
    remove(Path(folder), 1 if told == ENDED_WELL else _SCANS_WITHOUT)


def remove(folder: Path, scans: int = _SCANS_WITHOUT) -> None:
    """Kill the processes of a run that has ended, and remove its folder."""
    kill_all(folder, scans)
    shutil.rmtree(folder, ignore_errors=True)


def remove_of_dead_runs() -> list[Path]:
    """Remove what dead runs of this user left on this machine; returns the folders. Living runs are not touched."""
    dead = [folder for folder in _run_folders() if _is_dead(folder)]
    for folder in dead:
        remove(folder)
    return dead


def kill_all(folder: Path, scans: int = _SCANS_WITHOUT) -> None:
    """Kill all processes of the run, in whatever session they are; returns when there is none, or after some seconds."""
    end = time.monotonic() + _KILL_SECONDS
    without = 0
    while without < scans and time.monotonic() < end:
        found = list(processes(folder))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        without = 0 if found else without + 1
        if without < scans:
            time.sleep(_POLL_SECONDS)


def processes(folder: Path) -> Iterator[int]:
    """The process ids of a run: those of this user that inherited its folder's path."""
    entry = os.fsencode(f"{RUN_FOLDER}={folder}")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if int(process.name) != os.getpid() and entry in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


def _run_folders() -> Iterator[Path]:
    for parent in {Path(tempfile.gettempdir()), Path("/tmp")}:
        for folder in [*parent.glob(f"{PREFIX}*"), *parent.glob(f"{STARTING}*")]:
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == os.getuid():
                    yield folder


def _is_dead(folder: Path) -> bool:
    """Whether the run that made the folder has ended: nobody holds its lock."""
    try:
        if folder.name.startswith(STARTING):
            return time.time() - folder.stat().st_mtime > _STARTING_SECONDS
        with (folder / LOCK).open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:  # it is being removed, or its removal was killed
        return folder.exists()
    except OSError:  # locked, or a file system without locks
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1])
