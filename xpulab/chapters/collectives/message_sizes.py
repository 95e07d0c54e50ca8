"""How large the messages are whose bandwidth a chapter measures: as large as level and memory allow."""

from __future__ import annotations

from collections.abc import Sequence

from xpulab.checks.ledger import ledger
from xpulab.records.record import CardFacts

LARGEST = 4**14
"""Elements of four bytes: 1 GiB."""

COPIES = 6
"""How many tensors of the message's size a measurement holds at its peak: values, sums, and what they are compared with."""


def message_sizes(level: str, device: str) -> list[int]:
    """Elements of four bytes, each size four times that before.

    At level standard up to 1 GiB on a GPU or an XPU, as far as COPIES of it fit in the free memory that the vendor's tool
    shows of every card. On the CPU and on simulated cards, which share the host's memory, up to 64 MB; at lower levels 4 MB.
    """
    if level != "standard":
        return _up_to(4**10)
    if device not in ("gpu", "xpu"):
        return _up_to(4**12)
    facts = ledger.run_context.card_facts if ledger.run_context else ()
    return _up_to(max(4**12, min(LARGEST, free_bytes(facts) // (4 * COPIES))))


def free_bytes(facts: Sequence[CardFacts]) -> int:
    """The least free memory of these cards, in bytes; 0 where the tool does not show it."""
    known = [(each.memory_total_mib or 0) - (each.memory_used_mib or 0) for each in facts]
    return min(known, default=0) << 20


def _up_to(most: int) -> list[int]:
    return [4**power for power in range(2, 15) if 4**power <= most]
