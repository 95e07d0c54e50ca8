"""The folder of a run, and what a killed run leaves: processes and the folder.

A run keeps all temporary files of its kernels and ranks in one folder, xpulab-running-XXXX in the folder for temporary files.
All its processes inherit the variable warm.RUN_FOLDER, which names the folder: so they are found without any list.

    python -m xpulab.harness.run_folder FOLDER

is the process that waits beside each run. Its standard input ends with the run, however that ends; then it removes what is
left. It imports neither Paddle nor a package that is not Python's own.

Paddle's own segments, /dev/shm/paddle_PID_N_RANDOM, stay when their process is killed. That PID has ended does not mean that
nobody reads them: a tensor in a queue of paddle.incubate.multiprocessing is read after its sender has ended (measured with
3.3.1), and a container that shares /dev/shm has process ids of its own, and mostly the same user.
"""

from __future__ import annotations

import contextlib
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

from xpulab.warm import RUN_FOLDER

PREFIX = "xpulab-running-"

_KILL_SECONDS = 10.0
_END_SECONDS = 30.0
_POLL_SECONDS = 0.05
_PATH_BYTES = 32
"""Sockets of fork servers that kernels start lie three folders deeper, and a socket's path has 107 bytes at most."""
_SCANS_WITHOUT = 3
"""So many times in a row no process may be found: one that just replaces its program shows no variables for a moment."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder that is removed at the end of the block, or when this process is killed; with it go all processes of the run.

    A process is one of the run's when warm.RUN_FOLDER holds the folder's path in its environment.
    The process that does it is in no run and no session of ours, so that what ends us does not end it.
    """
    from xpulab import files
    from xpulab.child import Child  # not in the process beside the run, which starts in a tenth of the time

    parent = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent if len(os.fsencode(parent)) <= _PATH_BYTES else "/tmp"))
    watcher = Child(
        [sys.executable, "-S", "-m", "xpulab.harness.run_folder", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": str(files.ROOT), "TMPDIR": str(folder.parent)},
    )
    try:
        yield folder
    finally:
        watcher.close_input()
        watcher.end(_END_SECONDS)
        if watcher.wait() != 0:  # it was killed
            remove(folder)


def main(folder: str) -> None:
    """Wait until the run has ended, then leave nothing of it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those are for the run; this process ends right after it
    sys.stdin.buffer.read()
    remove(Path(folder))


def remove(folder: Path) -> None:
    """Kill all processes of a run, in whatever session they are, and remove its folder."""
    end, without = time.monotonic() + _KILL_SECONDS, 0
    while without < _SCANS_WITHOUT and time.monotonic() < end:
        found = list(processes(folder))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        without = 0 if found else without + 1
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def processes(folder: Path) -> Iterator[int]:
    """The process ids of a run: those of this user that inherited its folder's path."""
    entry = os.fsencode(f"{RUN_FOLDER}={folder}")
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if int(process.name) != os.getpid() and entry in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


if __name__ == "__main__":
    main(sys.argv[1])
