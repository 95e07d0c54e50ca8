"""Named shared-memory segments of the simulated cards' communicators.

A segment has a name only until all ranks have joined. A name that stays belongs to a run that crashed before; it is removed
when the same user creates the next communicator, or starts the next run.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

FOLDER = Path("/dev/shm")

_NAME = re.compile(r"xpulab-sim-\d+-(?P<boot>[0-9a-f]*)-(?P<namespace>\d+)-(?P<pid>\d+)-(?P<started>\d+)-\d+")
"""As Name::text in plugin/shm_segment.cc writes it."""
_STATE, _STARTED = 0, 19
"""Places in /proc/PID/stat, counted from behind the command's name."""


def segments() -> list[Path]:
    """The named segments of this user, sorted."""
    return sorted(FOLDER.glob(f"xpulab-sim-{os.getuid()}-*"))


def remove_abandoned() -> None:
    """Remove the segments whose creator has ended; those that another container made, whose processes are not seen, stay."""
    for segment in segments():
        name = _NAME.fullmatch(segment.name)
        if name and not _creator_lives(name):
            segment.unlink(missing_ok=True)


def _creator_lives(name: re.Match[str]) -> bool:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
    if not boot.startswith(name["boot"]):
        return False
    if int(name["namespace"]) != os.stat("/proc/self/ns/pid").st_ino:
        return True
    try:
        stat = Path(f"/proc/{name['pid']}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[_STATE] not in "ZX" and fields[_STARTED] == name["started"]
