"""A simulated accelerator: a device named "sim" with 1 to 16 cards, on every machine that has a C++ compiler.

What it is: a plug-in for Paddle's CPU wheel, through the interface by which Paddle takes devices that it does not know.
Tensors on it live in memory of the card's own, which can run out; streams and events order work that is done on other
threads; copies, memory accounting, views and process groups go the way that they go for any card; collectives go through
shared memory between processes. And it misbehaves when it is told to (xpulab.sim.faults).

What it is not: it checks the path through Paddle's device layer. It says nothing about Kunlun's kernels (an operator
without a kernel of the card's own, and that is all but five, is computed by Paddle's CPU kernel between two copies), about
Kunlun's collective library, or about the speed of any card. Each process has the memory of its cards to itself: two
processes on one card do not see each other's. Random numbers are the CPU's: all cards share its state.
Paddle gives what such an operator wrote new memory: written in place through a view of whole rows (x[1:3].add_(1)), it does
not reach x. A card without a kernel for the operator would lose it in the same way.

    from xpulab import sim
    sim.load(cards=2)
    paddle.set_device("sim:0")

Loaded after the import of paddle, the device in use stays what it was; loaded before, Paddle takes sim:0 for the default.
A new process gets the same from sim.environment(cards), before it imports paddle. Variables: XPULAB_SIM_CARDS;
XPULAB_SIM_MEMORY, bytes a card; XPULAB_SIM_TIMEOUT, seconds after which a wait is given up as hung (30);
XPULAB_SIM_FAULTS; XPULAB_SIM_CACHE, where the built plug-in is kept.
"""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.sim import faults
from xpulab.sim.attach import attach
from xpulab.sim.build import LIBRARY, built
from xpulab.sim.limits import LEAST_MEMORY_BYTES, MEMORY_BYTES, MOST_MEMORY_BYTES

COLLECTIVES = faults.KINDS["collective"]


@dataclass(frozen=True)
class Counters:
    """What one card has done in this process since it was loaded.

    bytes_to_device, bytes_to_host, bytes_on_device: copied (between cards counts where it arrived). allocations, frees: of
    device memory by Paddle's allocator, which keeps what tensors give back until empty_cache(). allocated_bytes: what that
    allocator has now, peak_bytes: the most it had. kernel_launches: of the card's own five kernels. tasks: what its streams
    did. faults: how many came up. collectives: how many were done, by kind.
    """

    bytes_to_device: int
    bytes_to_host: int
    bytes_on_device: int
    allocations: int
    frees: int
    allocated_bytes: int
    peak_bytes: int
    kernel_launches: int
    tasks: int
    faults: int
    collectives: dict[str, int]


def load(cards: int = 1, memory_bytes: int | None = None) -> None:
    """Give this process simulated cards, whether it has imported paddle or not; builds the plug-in when needed.

    Nothing happens when it has them already; faults that XPULAB_SIM_FAULTS spells now take the place of those before.
    memory_bytes: of each card; without it XPULAB_SIM_MEMORY, or 8 GiB.
    Raises InputError when it has another number of cards, or cards of another size, or when they cannot be built.
    """
    loaded = loaded_cards()
    if loaded:
        _require_same(loaded, cards, memory_bytes)
        set_faults(os.environ.get("XPULAB_SIM_FAULTS", ""))
        return
    os.environ.update(environment(cards, memory_bytes))
    if "paddle" in sys.modules:
        attach(Path(os.environ["CUSTOM_DEVICE_ROOT"]) / LIBRARY)


def environment(cards: int = 1, memory_bytes: int | None = None) -> dict[str, str]:
    """The variables that give a new process simulated cards when it imports paddle; builds the plug-in when needed.

    Raises InputError for numbers that cannot be, for faults that XPULAB_SIM_FAULTS does not spell, or without a compiler.
    """
    if not 1 <= cards <= MOST_CARDS:
        raise InputError(f"{cards} simulated cards: there may be 1 to {MOST_CARDS}")
    memory = _memory_bytes() if memory_bytes is None else memory_bytes
    if not LEAST_MEMORY_BYTES <= memory <= MOST_MEMORY_BYTES:
        raise InputError(
            f"{memory} bytes of memory for a simulated card: {LEAST_MEMORY_BYTES} to {MOST_MEMORY_BYTES} are possible"
        )
    faults.parse(os.environ.get("XPULAB_SIM_FAULTS", ""))
    return {
        "CUSTOM_DEVICE_ROOT": str(built().parent),
        "XPULAB_SIM_CARDS": str(cards),
        "XPULAB_SIM_MEMORY": str(memory),
        # else Paddle's loader of plug-ins writes seven lines to stderr
        "GLOG_minloglevel": os.environ.get("GLOG_minloglevel", "2"),  # noqa: SIM112 - glog spells it so
    }


def loaded_cards() -> int:
    """How many simulated cards this process has; 0 when paddle is not imported or has none."""
    core = sys.modules.get("paddle.base.core")
    return core.get_custom_device_count("sim") if core and "sim" in core.get_all_custom_device_type() else 0


def counters(card: int = 0) -> Counters:
    """What this card has done in this process. Raises InputError when there is no such card."""
    _require(card)
    library = _library()
    names = [field.name for field in fields(Counters) if field.name != "collectives"]
    values = {name: library.xpulab_sim_counter(card, index) for index, name in enumerate(names)}
    collectives = {kind: library.xpulab_sim_counter(card, len(names) + index) for index, kind in enumerate(COLLECTIVES)}
    return Counters(**values, collectives=collectives)


def set_faults(text: str) -> None:
    """Replace all faults of this process; "" takes them away. Counting begins anew.

    Cards that were lost are there again, and streams that had failed work again. Raises InputError for bad grammar.
    """
    _require(0)
    faults.parse(text)
    if _library().xpulab_sim_set_faults(text.encode()):
        raise InputError(last_error())


def last_error() -> str:
    """The last thing that a card of this process complained about; "" when there was nothing."""
    return _library().xpulab_sim_last_error().decode(errors="replace")


def _memory_bytes() -> int:
    text = os.environ.get("XPULAB_SIM_MEMORY") or str(MEMORY_BYTES)
    if not text.isascii() or not text.isdigit():
        raise InputError(f"XPULAB_SIM_MEMORY={text}: a number of bytes is needed, such as {MEMORY_BYTES}")
    return int(text)


def _require_same(loaded: int, cards: int, memory_bytes: int | None) -> None:
    if cards != loaded:
        raise InputError(
            f"{cards} simulated cards were asked for, and this process has {loaded} already: "
            "restart it (in Jupyter: the kernel) to have another number"
        )
    has = int(os.environ.get("XPULAB_SIM_MEMORY") or MEMORY_BYTES)
    if memory_bytes is not None and memory_bytes != has:
        raise InputError(
            f"cards of {memory_bytes} bytes were asked for, and this process has cards of {has} already: "
            "restart it (in Jupyter: the kernel) to have others"
        )


def _require(card: int) -> None:
    if not 0 <= card < loaded_cards():
        raise InputError(f"there is no simulated card {card} in this process, which has {loaded_cards()}")


@cache
def _library() -> ctypes.CDLL:
    """The library that Paddle has loaded, once more: the same one, with the same state."""
    library = ctypes.CDLL(str(Path(os.environ["CUSTOM_DEVICE_ROOT"]) / LIBRARY))
    library.xpulab_sim_counter.restype = ctypes.c_ulonglong
    library.xpulab_sim_last_error.restype = ctypes.c_char_p
    return library
