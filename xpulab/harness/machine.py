"""What this machine has left for another notebook: processor cores and memory, as the kernel of Linux shows them.

Of a container its share counts: the cores that it may run on, its quota of processor time, its limit of memory. What cannot be
read is unknown, never an error.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_WINDOW_SECONDS = 1.5
"""The load is the mean over so long: shorter than a notebook's phases, longer than its pauses between cells."""

_LEAST_SECONDS = 0.6
"""A mean over less says nothing: the counters grow in steps of 10 ms."""

_IDLE = (3, 4)
"""The columns of a processor's line in /proc/stat in which it did nothing: idle, and waiting for a disk."""
_COLUMNS = 8
"""The columns after these, guests', are parts of earlier ones."""

_QUOTAS = ("cpu.max", "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
_MEMORY = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
)
"""Of both versions of cgroups: the limit, what is used, and the line in a third file that says what of it is cached files."""


@dataclass(frozen=True)
class Reading:
    """One look at the machine.

    cores: how many this process may use; a quota may be a fraction. busy: how many of them have computed, in the mean of the
    last second or so, for this process or others; None while unknown. available: bytes of memory without swapping, None when
    unknown.
    """

    cores: float
    busy: float | None
    available: int | None


class Machine:
    """Reads the machine. proc, cgroup: folders of Linux. clock: seconds. Each look must come a little later than the last."""

    def __init__(self, clock: Callable[[], float], proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._clock, self._proc, self._cgroup = clock, proc, cgroup
        self._looks: deque[tuple[float, float]] = deque()

    def look(self) -> Reading:
        """The machine as it is now."""
        cores = usable_cores(self._cgroup)
        busy = self._busy()
        return Reading(cores, None if busy is None else min(busy, cores), self._available())

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
        usable = {f"cpu{number}" for number in _affinity()}
        try:
            lines = (line.split() for line in (self._proc / "stat").read_text(encoding="ascii").splitlines())
            columns = [list(map(int, line[1 : 1 + _COLUMNS])) for line in lines if line and line[0] in usable]
        except (OSError, ValueError):
            return None
        if not columns:
            return None
        ticks = sum(sum(line) - sum(line[index] for index in _IDLE if index < len(line)) for line in columns)
        return ticks / os.sysconf("SC_CLK_TCK")

    def _available(self) -> int | None:
        left = [self._available_here(), *(self._left_of(*names) for names in _MEMORY)]
        return min((each for each in left if each is not None), default=None)

    def _available_here(self) -> int | None:
        kibibytes = _entry(self._proc / "meminfo", "MemAvailable:")
        return None if kibibytes is None else kibibytes * 1024

    def _left_of(self, limit: str, used: str, statistics: str, cached: str) -> int | None:
        """What a container's limit leaves; None without a limit. Cached files give way when memory is needed."""
        most, used_now = _number(self._cgroup / limit), _number(self._cgroup / used)
        if most is None or used_now is None:
            return None
        return max(0, int(most - used_now + (_entry(self._cgroup / statistics, cached) or 0)))


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """The cores that this process may run on, or its quota of processor time when that is less; more than 0."""
    return min(len(_affinity()), _quota(cgroup) or math.inf)


def _affinity() -> set[int]:
    return os.sched_getaffinity(0)


def _quota(cgroup: Path) -> float | None:
    """Cores; None when there is no quota. Source: cgroup-v2.rst and sched-bwc.rst of Linux."""
    quota: float | None
    period: float | None
    try:
        quota, period = map(float, (cgroup / _QUOTAS[0]).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        quota, period = (_number(cgroup / name) for name in _QUOTAS[1:])
    if quota is None or period is None:
        return None
    return quota / period if quota > 0 and period > 0 else None


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text(encoding="ascii"))
    except (OSError, ValueError):  # "max" is no number either
        return None


def _entry(path: Path, name: str) -> int | None:
    """The number after the name, in a file with such a line for each."""
    try:
        lines = map(str.split, path.read_text(encoding="ascii").splitlines())
        return next((int(line[1]) for line in lines if line[:1] == [name]), None)
    except (OSError, ValueError, IndexError):
        return None
