"""Loading the built plug-in into a process that has imported paddle already.

Paddle looks for plug-ins while it is imported. The plug-in itself can do the same afterwards (plugin/attach.cc); here is
what remains to be done in Python, where some modules chose their functions by the devices that were there.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from xpulab.errors import InputError

_CHOSEN = (
    "device_count",
    "empty_cache",
    "get_rng_state",
    "manual_seed",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "reset_max_memory_allocated",
    "reset_max_memory_reserved",
    "set_rng_state",
)
"""What paddle/device/__init__.py takes from paddle.device.custom_device when there is a device of a plug-in."""

_CHOSEN_PRIVATELY = {
    "create_event": "_create_event_base",
    "create_stream": "_create_stream_base",
    "get_device_properties": "_get_device_properties",
}


def attach(library: Path) -> None:
    """Give this process, which has imported paddle, the devices of the plug-in.

    Raises InputError with the remedy when this wheel does not allow it.
    """
    import paddle

    package = Path(paddle.__file__).parent
    why = ctypes.create_string_buffer(4096)
    with _stderr_kept() as said:
        plugin = ctypes.CDLL(str(library))
        failed = plugin.xpulab_sim_attach(
            str(package / "base" / "libpaddle.so").encode(),
            str(package / "libs" / "libphi_core.so").encode(),
            str(library.parent).encode(),
            why,
            len(why),
        )
    if failed:
        raise InputError(
            f"the simulated accelerator cannot be loaded after paddle {paddle.__version__} was imported: "
            f"{why.value.decode(errors='replace')}. Call xpulab.sim.load() before `import paddle`.\n{said()}"
        )
    _choose_again(paddle)


def _choose_again(paddle: object) -> None:
    """Let paddle.device offer what it would offer had the device been there when it was imported."""
    import paddle.device.custom_device as chosen

    device = sys.modules["paddle.device"]
    # The module object stands in for another one, whose names its functions look up.
    looked_up = device.set_device.__globals__
    for name, wanted in {**{name: name for name in _CHOSEN}, **_CHOSEN_PRIVATELY}.items():
        if function := getattr(chosen, name, None):
            setattr(device, wanted, function)
            looked_up[wanted] = function
    looked_up["current_device_is_cpu"] = device.current_device_is_cpu = 0


@contextmanager
def _stderr_kept() -> Iterator[object]:
    """Inside the block what C++ writes to stderr is kept: Paddle's loader reports each step there. Yields a function for it."""
    with tempfile.TemporaryFile() as kept:
        before = os.dup(2)
        os.dup2(kept.fileno(), 2)
        text = ""

        def said() -> str:
            return text

        try:
            yield said
        finally:
            os.dup2(before, 2)
            os.close(before)
            kept.seek(0)
            text = kept.read().decode(errors="replace")
