"""Finding and killing what ranks have started, in whatever session or group it is now."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

MARK = "XPULAB_RANKS"
"""The environment variable that all programs which a rank starts inherit; its value is the run's address."""


def descendants(pids: Iterable[int]) -> list[psutil.Process]:
    """All processes that descend from these. A rank adopts what its children leave behind, so none is missed."""
    found: list[psutil.Process] = []
    unseen = list(pids)
    while unseen:
        children = _children(unseen.pop())
        for pid in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(psutil.Process(pid))
        unseen += children
    return found


def marked(address: str) -> list[psutil.Process]:
    """All programs that a rank of this run has started, even when the rank has ended. Those of other users are not ours."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == address:
                found.append(process)
    return found


def kill(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL to each, and to what it has started meanwhile; psutil makes sure that a number is still the same process."""
    for process in processes:
        later = descendants([process.pid])
        for each in (process, *later):
            with contextlib.suppress(psutil.Error):
                if each.pid != os.getpid():
                    each.kill()


def _children(pid: int) -> list[int]:
    children: list[int] = []
    with contextlib.suppress(OSError, psutil.NoSuchProcess):
        files = list(Path(f"/proc/{pid}/task").glob("*/children"))
        if not files:  # a kernel that keeps no such list
            return [child.pid for child in psutil.Process(pid).children()]
        for file in files:
            children += map(int, file.read_text().split())
    return children
