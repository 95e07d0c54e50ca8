"""Computing in half types also where only simulated cards are at hand: a process has kernels for them when it is started so."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

from xpulab.devices import SIMULATED

_SWITCH = "XPULAB_SIM_HALF"
"""The variable with which a new process on simulated cards computes in half types."""


def in_new_processes(device: str) -> AbstractContextManager[Any]:
    """Processes on simulated cards that start meanwhile compute in half types; for other devices nothing changes."""
    return mock.patch.dict(os.environ, {_SWITCH: "1"}) if device == SIMULATED else nullcontext()


def in_this_process() -> None:
    """Simulated cards of this process compute in half types, when they are loaded after this call; so do those of its ranks."""
    os.environ[_SWITCH] = "1"
