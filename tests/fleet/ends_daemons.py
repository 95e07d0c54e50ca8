"""Ends the daemons of a test whose process was killed: python -S ends_daemons.py ENTRY FOLDER

It waits until its standard input ends. Unless ENDED_WELL came before, it kills all processes with ENTRY, "NAME=value", in their
environment, which daemons pass on to what they start, and removes FOLDER. A process id in a file of a daemon may have become
that of another process; an environment with the path of this folder is only the daemons'.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ENDED_WELL = b"ended"

_SECONDS = 20.0
_POLL_SECONDS = 0.1
_SCANS_WITHOUT = 3
"""So many times in a row no process may be found: one that just replaces its program shows no variables for a moment."""


def main(entry: str, folder: str) -> None:
    """Wait until the tests have ended; unless they ended the daemons themselves, leave nothing."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # those are for the tests; this process ends right after them
    if sys.stdin.buffer.read() == ENDED_WELL:
        return
    without, until = 0, time.monotonic() + _SECONDS
    while without < _SCANS_WITHOUT and time.monotonic() < until:
        found = list(processes_with(entry))
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        without = 0 if found else without + 1
        time.sleep(_POLL_SECONDS)
    shutil.rmtree(folder, ignore_errors=True)


def processes_with(entry: str) -> Iterator[int]:
    """The ids of the processes that started with this entry in their environment, as far as this user may see it."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.fsencode(entry) in (process / "environ").read_bytes().split(b"\0"):
                yield int(process.name)


if __name__ == "__main__":
    main(*sys.argv[1:])
