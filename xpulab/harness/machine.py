"""What this machine has left for another notebook: processor cores and memory, as the kernel of Linux shows them.

Of a container its share counts. What cannot be read is unknown, never an error.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from xpulab.records.usable import ROOT, available_memory, usable_cores

_WINDOW_SECONDS = 1.5
"""The load is the mean over so long: shorter than a notebook's phases, longer than its pauses between cells."""

_LEAST_SECONDS = 0.6
"""A mean over less says nothing: the counters grow in steps of 10 ms."""

_IDLE = (3, 4)
"""The columns of a processor's line in /proc/stat in which it did nothing: idle, and waiting for a disk."""
_COLUMNS = 8
"""The columns after these, guests', are parts of earlier ones."""


@dataclass(frozen=True)
class Reading:
    """One look at the machine.

    cores: how many this process may use; a quota may be a fraction. busy: how many of them have computed, in the mean of the
    last second or so, for this process or others; None while unknown. available: bytes of memory without swapping, infinite
    when unknown.
    """

    cores: float
    busy: float | None
    available: float


class Machine:
    """Reads the machine. clock: seconds. root: the folder with proc and sys. Each look must come a little after the last."""

    def __init__(self, clock: Callable[[], float], root: Path = ROOT) -> None:
        self._clock, self._root = clock, root
        self._looks: deque[tuple[float, float]] = deque()

    def look(self) -> Reading:
        """The machine as it is now."""
        cores = usable_cores(self._root)
        busy = self._busy()
        return Reading(cores, None if busy is None else min(busy, cores), available_memory(self._root))

    def forget(self) -> None:
        """What was measured until now does not count any more: a notebook has ended, or has just begun."""
        self._looks.clear()

    def _busy(self) -> float | None:
        spent = self._spent()
        if spent is None:
            return None
        now = self._clock()
        self._looks.append((now, spent))
        while len(self._looks) > 1 and now - self._looks[1][0] >= _WINDOW_SECONDS:
            self._looks.popleft()
        began, before = self._looks[0]
        return max(0.0, spent - before) / (now - began) if now - began >= _LEAST_SECONDS else None

    def _spent(self) -> float | None:
        """The seconds that all cores that this process may use have computed since the machine started."""
        usable = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        try:
            lines = (line.split() for line in (self._root / "proc/stat").read_text(encoding="ascii").splitlines())
            columns = [list(map(int, line[1 : 1 + _COLUMNS])) for line in lines if line and line[0] in usable]
        except (OSError, ValueError):
            return None
        if not columns:
            return None
        ticks = sum(sum(line) - sum(line[index] for index in _IDLE if index < len(line)) for line in columns)
        return ticks / os.sysconf("SC_CLK_TCK")
