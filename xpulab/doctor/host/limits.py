"""What a process may use on this host: locked memory, files, shared memory, huge pages, disk, clocks, a container's share."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

from xpulab.doctor.finding import Finding
from xpulab.doctor.host.finding import fine, found, unknown
from xpulab.messages import N_
from xpulab.records.usable import available_memory, usable_cores

MIB, GIB = 1 << 20, 1 << 30
SHARED_MEMORY_OF_A_CARD = GIB
"""Bytes of /dev/shm for each card: four workers with two batches of 64 MiB each, and what collectives take.

PyTorch's DataLoader and Paddle's pass batches through it; Docker's default is 64 MiB for all."""
OPEN_FILES = 4096
"""The least soft limit: each worker of a DataLoader and each connection to another rank holds several."""
PROCESSES = 4096
"""The least number of processes and threads of a container: 8 ranks with their workers and their threads."""
HUGE_PAGES_SHARE = 0.25
"""Of the memory, unused: from there on reserved huge pages are missed by everything else."""
DISK_LEAST, DISK_SHARE, INODES_LEAST = 10 * GIB, 0.05, 10_000
"""Free bytes, their share, and free inodes of the folder of checkpoints."""
UNSYNCHRONIZED = 5
"""What adjtimex returns for a clock that nothing corrects (TIME_ERROR, sys/timex.h)."""
CLOCK_ERROR = 1.0
"""Seconds: the largest error that the kernel estimates for a corrected clock."""


def limits(root: Path, cards: int, has_rdma: bool) -> Iterator[Finding]:
    """Limits of this process, as its children inherit them. cards: how many the host has."""
    text = _text(root / "proc/self/limits")
    if text is None:
        yield unknown("limits", N_("/proc/self/limits cannot be read"))
    else:
        yield _locked_memory(_limit(text, "Max locked memory"), has_rdma)
        files = _limit(text, "Max open files")
        seen = N_(f"{_count(files)} open files (soft limit)")
        yield fine("open-files", seen) if files is None or files >= OPEN_FILES else found("open-files", "wrong", seen)
    yield from _shared_memory(root, cards)
    yield from _huge_pages(root)
    yield from _governor(root)
    yield from _share(root)


def disk(folder: Path) -> Finding:
    """Free space and inodes of a folder of checkpoints, or of the nearest one that is there."""
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    usage, status = shutil.disk_usage(there), os.statvfs(there)
    inodes = status.f_favail if status.f_files else None
    free, total = f"{usage.free / GIB:.1f}", f"{usage.total / GIB:.1f}"
    seen = N_(f"{free} GiB free of {total} in {folder}")
    if inodes is not None:
        seen = N_(f"{free} GiB free of {total} and {_count(inodes)} inodes in {folder}")
    if usage.free < DISK_LEAST or (inodes is not None and inodes < INODES_LEAST):
        return found("disk", "wrong", seen)
    return found("disk", "warn", seen) if usage.free < DISK_SHARE * usage.total else fine("disk", seen)


def clock() -> Finding:
    """Whether something corrects this host's clock, and how far off the kernel thinks it is."""
    state, error = _adjtimex()
    if state < 0:
        return unknown("clock", N_("the kernel does not say whether the clock is corrected"))
    return judged_clock(state, error)


def judged_clock(state: int, error: float) -> Finding:
    """state: of adjtimex. error: the largest one that the kernel estimates, in seconds."""
    if state == UNSYNCHRONIZED:
        return found("clock", "warn", N_("nothing corrects the clock"))
    seen = N_(f"the clock is corrected to {error:.3g} s")
    return found("clock", "warn", seen) if error > CLOCK_ERROR else fine("clock", seen)


def _adjtimex() -> tuple[int, float]:
    """What adjtimex returns, and the field maxerror in seconds; it changes nothing. (-1, 0) where it is not there."""
    buffer = ctypes.create_string_buffer(256)
    try:
        state = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return -1, 0.0
    return state, struct.unpack_from("@Illl", buffer.raw)[3] / 1e6


def _locked_memory(limit: int | None, has_rdma: bool) -> Finding:
    seen = N_("locked memory is unlimited") if limit is None else N_(f"{limit / GIB:.2g} GiB of locked memory")
    if limit is None:
        return fine("locked-memory", seen)
    return found("locked-memory", "wrong" if has_rdma else "warn", seen)


def _shared_memory(root: Path, cards: int) -> Iterator[Finding]:
    mounts = _text(root / "proc/mounts") or ""
    options = next((line.split()[3] for line in mounts.splitlines() if line.split()[1:2] == ["/dev/shm"]), None)
    if options is None:
        yield found("shared-memory", "wrong", N_("/dev/shm is not mounted"))
        return
    size = _size_option(options)
    size = _memory(root, "MemTotal") // 2 if size is None else size  # tmpfs(5)
    needed = SHARED_MEMORY_OF_A_CARD * max(1, cards)
    seen = N_(
        f"/dev/shm has {size / GIB:.3g} GiB; workers of data loaders need about {needed / GIB:g} GiB for {max(1, cards)} cards"
    )
    yield fine("shared-memory", seen) if size >= needed else found("shared-memory", "wrong", seen)


def _size_option(options: str) -> int | None:
    """Bytes of the option size= of a tmpfs; None without one."""
    match = re.search(r"(?:^|,)size=(\d+)([kmg]?)", options)
    return int(match[1]) * {"": 1, "k": 1 << 10, "m": MIB, "g": GIB}[match[2]] if match else None


def _huge_pages(root: Path) -> Iterator[Finding]:
    total, unused = _memory(root, "MemTotal"), _pages(root, "HugePages_Free") * _memory(root, "Hugepagesize")
    if not total:
        yield unknown("huge-pages", N_("/proc/meminfo cannot be read"))
        return
    seen = N_(f"{unused / GIB:.3g} GiB of reserved huge pages are unused")
    yield found("huge-pages", "warn", seen) if unused > HUGE_PAGES_SHARE * total else fine("huge-pages", seen)


def _governor(root: Path) -> Iterator[Finding]:
    paths = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({(_text(path) or "").strip() for path in paths} - {""})
    if governors:
        seen = N_(f"CPU governor: {', '.join(governors)}")
        yield fine("cpu-governor", seen) if governors == ["performance"] else found("cpu-governor", "warn", seen)


def _share(root: Path) -> Iterator[Finding]:
    """What a container or a job is given."""
    yield fine("share", N_(f"{usable_cores(root):g} cores and {available_memory(root) / GIB:.1f} GiB of memory are usable"))
    path = next((p for p in (root / "sys/fs/cgroup/pids.max", root / "sys/fs/cgroup/pids/pids.max") if p.exists()), None)
    text = (_text(path) or "max").strip() if path else "max"
    if text.isdigit() and int(text) < PROCESSES:
        yield found("processes", "wrong", N_(f"this container may start {text} processes and threads"))


def _limit(text: str, name: str) -> int | None:
    """The soft limit of a line of /proc/self/limits; None when it is unlimited."""
    match = re.search(rf"^{name} +(\S+)", text, re.M)
    return int(match[1]) if match and match[1].isdigit() else None


def _memory(root: Path, name: str) -> int:
    """Bytes of a line of /proc/meminfo; 0 when it is not there."""
    return 1024 * _pages(root, name)


def _pages(root: Path, name: str) -> int:
    match = re.search(rf"^{name}: +(\d+)", _text(root / "proc/meminfo") or "", re.M)
    return int(match[1]) if match else 0


def _count(value: int | None) -> str:
    return N_("unlimited") if value is None else f"{value:,}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None
