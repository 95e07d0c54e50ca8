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
    ("memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")),
)
"""Of each version the limit, what is used, and the lines of memory.stat with what of it Linux takes back when it is needed."""


def usable_cores(root: Path = ROOT) -> float:
    """The cores that this process may run on, or its quota of processor time when that is less: more than 0, maybe 1.5.

    root: the folder that holds proc and sys.
    """
    quotas = []
    for group in _groups(root, "cpu"):
        for quota in (_numbers(group / "cpu.max"), _numbers(group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")):
            quotas += [quota[0] / quota[1]] if len(quota) == 2 and min(quota) > 0 else []
    return min([len(os.sched_getaffinity(0)), *quotas])


def whole_cores(root: Path = ROOT) -> int:
    """How many threads or processes can compute at the same time: the usable cores rounded down, at least 1."""
    return max(1, math.floor(usable_cores(root)))


def available_memory(root: Path = ROOT) -> float:
    """Bytes that this process can still use without swapping: of the machine, or of its groups when that is less.

    Cached files count as free, here as in the machine's own number. Infinite when nothing can be read. root: as above.
    """
    left = [kibibytes * 1024.0 for kibibytes in _entries(root / "proc/meminfo", ("MemAvailable:",))]
    for group in _groups(root, "memory"):
        for limit, used, reclaimable in _LIMITS:
            both = _numbers(group / limit, group / used)
            if len(both) == 2:
                taken = max(0, both[1] - sum(_entries(group / "memory.stat", reclaimable)))
                left.append(max(0.0, both[0] - taken))
    return min(left, default=math.inf)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's group, and of all groups above it, that may have limits of a controller.

    A container may show its own group as the top, and keep the host's path: the first parts of it are not there then.
    """
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if controllers and controller not in controllers.split(","):  # version 2 names none: it has one hierarchy
            continue
        top, parts = root / _GROUPS / (controller if controllers else ""), [part for part in path.split("/") if part]
        while parts and (".." in parts or not top.joinpath(*parts).is_dir()):
            parts = parts[1:]
        yield from (top.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1))


def _numbers(*paths: Path) -> list[int]:
    """The numbers in these files; none when one has another word, such as "max"."""
    try:
        return [int(word) for path in paths for line in _lines(path) for word in line.split()]
    except ValueError:
        return []


def _entries(path: Path, names: tuple[str, ...]) -> list[int]:
    """The numbers after these names, in a file with a name and a number on each line."""
    words = (line.split() for line in _lines(path))
    return [int(line[1]) for line in words if len(line) > 1 and line[0] in names and line[1].isdigit()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
