"""What the simulated cards' communicators have in shared memory under a name.

A segment has a name only until all ranks have joined; one that can be seen longer was left by a run that crashed before,
and goes when the next communicator of the same user is made.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path("/dev/shm")


def segments() -> list[Path]:
    """The named segments of this user, sorted."""
    return sorted(FOLDER.glob(f"xpulab-sim-{os.getuid()}-*"))
