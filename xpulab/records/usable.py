"""What this process may use of its machine: processor cores, and memory.

In a container, a job or a service it is a share: the cores that the process may run on, and what its control group and every
group above it allow, in both versions of cgroups. What cannot be read limits nothing.

Sources: cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst and filesystems/proc.rst of Linux.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")

_GROUPS = "sys/fs/cgroup"
_LIMITS = (
    (("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    (("memory.limit_in_bytes",), "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
"""Of each version the limits, what is used, and the lines of memory.stat with what of it Linux takes back when it is needed."""


def usable_cores(root: Path = ROOT) -> float:
    """The cores that this process may run on, or its quota of processor time when that is less: more than 0, maybe 1.5.

    root: the folder that holds proc and sys.
    """
    quotas = (_quota(group) for group in _groups(root, "cpu"))
    return min([len(os.sched_getaffinity(0)), *(quota for quota in quotas if quota is not None)])


def whole_cores(root: Path = ROOT) -> int:
    """How many threads or processes can compute at the same time: the usable cores rounded down, at least 1."""
    return max(1, math.floor(usable_cores(root)))


def available_memory(root: Path = ROOT) -> float:
    """Bytes that this process can still use without swapping: of the machine, or of its groups when that is less.

    Cached files count as free, here as in the machine's own number. Infinite when nothing can be read. root: as above.
    """
    kibibytes = _entry(root / "proc/meminfo", "MemAvailable:")
    left = [each for group in _groups(root, "memory") for each in _left(group)]
    return min([math.inf if kibibytes is None else kibibytes * 1024, *left])


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group, and of all groups above it, that may have limits of a controller."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if not controllers:  # of version 2, which has one hierarchy
            yield from _with_those_above(root / _GROUPS, path)
        elif controller in controllers.split(","):
            yield from _with_those_above(root / _GROUPS / controller, path)


def _with_those_above(top: Path, path: str) -> Iterator[Path]:
    """A container may show its own group as the top, and keep the host's path: the first parts of it are not there then."""
    parts = [part for part in path.split("/") if part]
    if ".." in parts:  # the group is outside of what is shown here
        parts = []
    shown = (parts[start:] for start in range(len(parts)) if top.joinpath(*parts[start:]).is_dir())
    parts = next(shown, [])
    yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _quota(group: Path) -> float | None:
    """Cores; None when there is no quota."""
    both = [_numbers(group / "cpu.max"), [*_numbers(group / "cpu.cfs_quota_us"), *_numbers(group / "cpu.cfs_period_us")]]
    quotas = [pair[0] / pair[1] for pair in both if len(pair) == 2 and min(pair) > 0]
    return min(quotas, default=None)


def _left(group: Path) -> Iterator[float]:
    """What each limit of a group leaves of its memory, in bytes."""
    for limits, used, reclaimable in _LIMITS:
        if not (now := _numbers(group / used)):
            continue
        taken = max(0.0, now[0] - sum(_entry(group / "memory.stat", name) or 0 for name in reclaimable))
        for most in (number for limit in limits for number in _numbers(group / limit)):
            yield max(0.0, most - taken)


def _numbers(path: Path) -> list[float]:
    """The numbers in a file; none when it has another word, such as "max"."""
    try:
        return [int(word) for line in _lines(path) for word in line.split()]
    except ValueError:
        return []


def _entry(path: Path, name: str) -> int | None:
    """The number after the name, in a file with such a line for each."""
    words = (line.split() for line in _lines(path))
    found = next((line[1] for line in words if len(line) > 1 and line[0] == name), "")
    return int(found) if found.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
