"""What a card has done in this process, as the plug-in counts it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from xpulab import sim


@dataclass(frozen=True)
class Counters:
    """In the order of plugin/counters.h. Bytes that were copied; a copy between cards counts on the receiving card.

    allocated_bytes: what Paddle's allocator has now, which caches freed tensors until empty_cache().
    kernel_launches: of the card's own kernels. faults: how many were injected.
    """

    bytes_to_device: int
    bytes_to_host: int
    bytes_on_device: int
    allocated_bytes: int
    kernel_launches: int
    faults: int


def counters(card: int) -> Counters:
    """Those of a card."""
    library = sim._library()
    return Counters(*(library.xpulab_sim_counter(card, index) for index, _ in enumerate(fields(Counters))))
