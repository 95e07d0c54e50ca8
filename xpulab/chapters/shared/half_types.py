"""Computing in half types also where only simulated cards are at hand: a process has kernels for them when it is started so."""

from __future__ import annotations

import os


def in_this_process() -> None:
    """Simulated cards of this process compute in half types, when they are loaded after this call; so do those of its ranks."""
    os.environ["XPULAB_SIM_HALF"] = "1"
