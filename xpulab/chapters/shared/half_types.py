"""Computing in half types also where only simulated cards are at hand: a process has kernels for them when it is started so.

Offered: in_new_processes, with_kernels.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

from xpulab import ranks
from xpulab.devices import SIMULATED

_SWITCH = "XPULAB_SIM_HALF"
"""The variable with which a new process on simulated cards computes in half types."""


def in_new_processes(device: str) -> AbstractContextManager[Any]:
    """Processes on simulated cards that start meanwhile compute in half types; for other devices nothing changes."""
    return mock.patch.dict(os.environ, {_SWITCH: "1"}) if device == SIMULATED else nullcontext()


def with_kernels(function: Callable[..., Any], *arguments: Any, device: str) -> Any:
    """function(*arguments): on simulated cards in a process of its own that computes in half types, elsewhere in this one.

    Raises RanksFailed when the process fails.
    """
    if device != SIMULATED:
        return function(*arguments)
    with in_new_processes(device):
        return ranks.run(function, 1, *arguments, device=device, time_limit=120)[0]
