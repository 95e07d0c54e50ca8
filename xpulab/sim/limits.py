"""Limits and defaults of the simulated accelerator. The C++ plug-in gets them from here, as macros (DEFINITIONS)."""

from __future__ import annotations

from xpulab.devices import MOST_CARDS

MEMORY_BYTES = 8 * 2**30
"""Memory of one card, unless XPULAB_SIM_MEMORY gives another size. The host provides only what is used of it."""

LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES = 2**20, 2**40
"""The range of XPULAB_SIM_MEMORY."""

TIMEOUT_SECONDS = 30
"""How long a wait lasts before it fails, unless XPULAB_SIM_TIMEOUT gives another time."""

DROP_EXIT_CODE = 113
"""The exit code of a process that the fault action `drop` has ended."""

DEFINITIONS = tuple(
    f"-DXPULAB_SIM_{name}={value}"
    for name, value in {
        "MOST_CARDS": MOST_CARDS,
        "MEMORY_BYTES": MEMORY_BYTES,
        "LEAST_MEMORY_BYTES": LEAST_MEMORY_BYTES,
        "MOST_MEMORY_BYTES": MOST_MEMORY_BYTES,
        "TIMEOUT_SECONDS": TIMEOUT_SECONDS,
        "DROP_EXIT_CODE": DROP_EXIT_CODE,
    }.items()
)
"""The compiler options that define these values for plugin/limits.h."""
