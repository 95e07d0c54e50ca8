"""Loading the built plug-in into a process that has already imported paddle.

Paddle loads plug-ins while it is imported. plugin/attach.cc does this later for the C++ part. This module does the rest in
Python: paddle.device chooses some of its functions by the devices that exist at import.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from xpulab.errors import InputError

_CUSTOM_FUNCTIONS = (
    *("device_count", "empty_cache", "get_rng_state", "manual_seed", "set_rng_state", "memory_allocated", "memory_reserved"),
    *("max_memory_allocated", "max_memory_reserved", "reset_max_memory_allocated", "reset_max_memory_reserved"),
)
"""What paddle/device/__init__.py imports from paddle.device.custom_device if there is a custom device."""

_PRIVATE_CUSTOM_FUNCTIONS = {
    "create_event": "_create_event_base",
    "create_stream": "_create_stream_base",
    "get_device_properties": "_get_device_properties",
}


def attach(library: Path) -> None:
    """Load the plug-in into this process, which has imported paddle.

    Raises InputError, with what to do instead, if this wheel does not support it.
    """
    import paddle

    package = Path(paddle.__file__).parent
    reason = ctypes.create_string_buffer(4096)
    with captured_stderr() as lines:  # Paddle's loader logs there
        plugin = ctypes.CDLL(str(library))
        failed = plugin.xpulab_sim_attach(
            str(package / "base" / "libpaddle.so").encode(),
            str(package / "libs" / "libphi_core.so").encode(),
            str(library.parent).encode(),
            reason,
            len(reason),
        )
    if failed:
        raise InputError(
            f"the simulated accelerator cannot be loaded after paddle {paddle.__version__} was imported: "
            + "\n".join([f"{reason.value.decode(errors='replace')}. Call xpulab.sim.load() before `import paddle`.", *lines])
        )
    _use_custom_functions(paddle)


def _use_custom_functions(paddle: Any) -> None:
    """Give paddle.device the functions that it would have if the device had existed at import."""
    import paddle.device.custom_device as custom

    device = sys.modules["paddle.device"]
    # Paddle replaces the module object in sys.modules; the functions still look up names in the original module.
    original = device.set_device.__globals__
    for name, target in {**{name: name for name in _CUSTOM_FUNCTIONS}, **_PRIVATE_CUSTOM_FUNCTIONS}.items():
        if function := getattr(custom, name, None):
            setattr(device, target, function)
            original[target] = function
    original["current_device_is_cpu"] = device.current_device_is_cpu = 0
    # auto_cast and decorate look for the device in a list of names, unless it is asked. A process that loads the plug-in while
    # it imports paddle gets this from plugin/wheel.cc.
    if os.environ.get("XPULAB_SIM_HALF") == "1":
        sys.modules["paddle.amp.auto_cast"]._is_custom_device_bfloat16_supported = paddle.amp.is_bfloat16_supported


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Capture standard error of this process, also of C++; at the end of the block its lines are in the list."""
    lines: list[str] = []
    with tempfile.TemporaryFile() as file:
        before = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()
