"""The simulated accelerator: a device named "sim" with 1 to 16 cards, on every machine with a C++ compiler.

It is a plug-in for Paddle's CPU wheel, through Paddle's custom-device interface. Each card has its own memory, which can run
out. Streams and events are asynchronous: work runs on other threads. Copies, memory accounting, views and process groups use
the same code in Paddle as for any other card. Collectives use shared memory between processes. Faults can be injected
(xpulab.sim.faults).

It tests the path through Paddle's device layer. It does not test Kunlun's kernels, Kunlun's collective library or the speed
of any card. Limits:

- Only ten operators have kernels on the card. Paddle runs all others on the CPU, between two copies.
- In place such an operator writes where the tensor was, as a kernel of the card would. Paddle alone gives it new memory, on
  any card without a kernel for the operator: x[1:3].add_(1) then does not change x (plugin/in_place.h). It still does so for
  tensors with a placement on a mesh, and in static programs.
- Each process has its own memory on each card: two processes on one card do not see each other's.
- Paddle's reshard refuses every custom device. The plug-in has its own, with the collectives that Paddle's uses; to a mesh of
  other ranks only with the same placements. Paddle refuses to add a second gradient to that of a placed tensor.
- Pinned host memory and asynchronous offload are out of a plug-in's reach: in Paddle 3.3.1 pin_memory() needs a build for CUDA
  or XPU, and create_async_load() returns None.
- Random numbers come from the CPU: all cards share its random state.

    from xpulab import sim
    sim.load(cards=2)
    paddle.set_device("sim:0")

Loading it after the import of paddle keeps the current device. Loading it before makes sim:0 Paddle's default device.
sim.environment(cards) returns the variables that give a new process the same cards; set them before it imports paddle.

Environment variables: XPULAB_SIM_CARDS; XPULAB_SIM_MEMORY, bytes for each card; XPULAB_SIM_TIMEOUT, seconds after which a
wait fails (30); XPULAB_SIM_HALF=1, to compute bfloat16 and float16, too; XPULAB_SIM_FAULTS; XPULAB_SIM_CACHE, the folder of
the built plug-in.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from pathlib import Path

from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.sim import faults
from xpulab.sim.attach import attach
from xpulab.sim.build import LIBRARY, built
from xpulab.sim.limits import LEAST_MEMORY_BYTES, MEMORY_BYTES, MOST_MEMORY_BYTES


def load(cards: int = 1) -> None:
    """Add simulated cards to this process, before or after it imports paddle. Builds the plug-in if needed.

    If the process already has these cards, only its faults are replaced by those of XPULAB_SIM_FAULTS.
    Raises InputError if the process has another number of cards, or if the build fails.
    """
    if loaded := loaded_cards():
        if cards != loaded:
            raise InputError(
                f"cannot load {cards} simulated cards: this process already has {loaded}. "
                "To change the number, restart the process (in Jupyter: the kernel)"
            )
        set_faults(os.environ.get("XPULAB_SIM_FAULTS", ""))
        return
    os.environ.update(environment(cards))
    if "paddle" in sys.modules:
        attach(Path(os.environ["CUSTOM_DEVICE_ROOT"]) / LIBRARY)


def environment(cards: int = 1) -> dict[str, str]:
    """The environment variables that give a new process simulated cards. Builds the plug-in if needed.

    Raises InputError for numbers out of range, for invalid text in XPULAB_SIM_FAULTS, and without a compiler.
    """
    if not 1 <= cards <= MOST_CARDS:
        raise InputError(N_("{cards} simulated cards: choose 1 to {MOST_CARDS}", cards=cards, MOST_CARDS=MOST_CARDS))
    memory = memory_of_a_card()
    if not LEAST_MEMORY_BYTES <= memory <= MOST_MEMORY_BYTES:
        least, most = LEAST_MEMORY_BYTES, MOST_MEMORY_BYTES
        raise InputError(
            N_("{memory} bytes of memory for a simulated card: choose {least} to {most}", memory=memory, least=least, most=most)
        )
    faults.parse(os.environ.get("XPULAB_SIM_FAULTS", ""))
    return {
        "CUSTOM_DEVICE_ROOT": str(built().parent),
        "XPULAB_SIM_CARDS": str(cards),
        "XPULAB_SIM_MEMORY": str(memory),
        # otherwise Paddle's plug-in loader writes seven lines to stderr
        "GLOG_minloglevel": os.environ.get("GLOG_minloglevel", "2"),  # noqa: SIM112 - glog's own name
    }


def memory_of_a_card() -> int:
    text = os.environ.get("XPULAB_SIM_MEMORY") or str(MEMORY_BYTES)
    if not text.isascii() or not text.isdigit():
        raise InputError(
            N_(
                "XPULAB_SIM_MEMORY={text}: give a number of bytes, for example {MEMORY_BYTES}",
                text=text,
                MEMORY_BYTES=MEMORY_BYTES,
            )
        )
    return int(text)


def loaded_cards() -> int:
    """The number of simulated cards of this process; 0 if paddle is not imported or has none."""
    core = sys.modules.get("paddle.base.core")
    return core.get_custom_device_count("sim") if core and "sim" in core.get_all_custom_device_type() else 0


def serial_number(card: int) -> str:
    """The serial number of a simulated card, as a vendor's tool shows it for a real one."""
    return f"simulated-{card}"


def half_kernels() -> list[tuple[str, str]]:
    """The kernels for half types that this plug-in gives the CPU, as ("matmul", "bfloat16").

    Raises InputError if this process has no simulated cards.
    """
    _require_cards()
    lines = [line.split() for line in _library().xpulab_sim_half_kernels().decode().splitlines()]
    return [(name, dtype) for name, dtype, outcome, *_ in lines if outcome == "added"]


def set_faults(text: str) -> None:
    """Replace all faults of this process and restart their counts; "" removes all faults.

    Lost cards and failed streams become usable again. Raises InputError for invalid text.
    """
    _require_cards()
    faults.parse(text)
    if _library().xpulab_sim_set_faults(text.encode()):
        raise InputError(last_error())


def last_error() -> str:
    """The last error or fault that a card of this process reported; "" if there was none."""
    return _library().xpulab_sim_last_error().decode(errors="replace")


def _require_cards() -> None:
    if not loaded_cards():
        raise InputError(N_("this process has no simulated cards: call xpulab.sim.load()"))


@cache
def _library() -> ctypes.CDLL:
    """The library that Paddle has loaded, opened again: it shares the same state."""
    library = ctypes.CDLL(str(Path(os.environ["CUSTOM_DEVICE_ROOT"]) / LIBRARY))
    library.xpulab_sim_counter.restype = ctypes.c_ulonglong
    library.xpulab_sim_last_error.restype = ctypes.c_char_p
    library.xpulab_sim_half_kernels.restype = ctypes.c_char_p
    return library
