"""Named shared-memory segments of the simulated cards' communicators.

A segment has a name only until all ranks have joined. A name that stays belongs to a run that crashed before; it is removed
when the same user creates the next communicator.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path("/dev/shm")


def segments() -> list[Path]:
    """The named segments of this user, sorted."""
    return sorted(FOLDER.glob(f"xpulab-sim-{os.getuid()}-*"))
