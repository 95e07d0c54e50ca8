"""Accelerator cards as the vendors describe them: through a tool or a library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from xpulab.messages import N_

Outcome = Literal["ok", "missing", "failed", "hung", "unreadable", "foreign"]


@dataclass(frozen=True)
class Card:
    """One compute device as its vendor shows it. A field is None when the vendor does not show it.

    index: the number in /dev/xpuN, or NVML's index; a K200 board holds two devices, which share an address
    model: as printed, "P800 OAM", "R200-VF-5G", "NVIDIA A100-SXM4-80GB"
    generation: of the chip, "KL1", "KL2", "KL3" or "cuda"; None for a model that this suite does not know
    pci_address: domain:bus:device.function, lower case, four-digit domain
    serial: the board's serial number
    memory_total_mib, memory_used_mib: MiB (the KL1/KL2 tool and `-m` call the same numbers MB)
    temperature_c: degrees Celsius
    power_w: W
    utilisation_percent: 0 to 100
    firmware: KL3 the SBL version, "1.48"; KL1 and KL2 the three-part version, "0001.0002.0022"
    state: "error" of a card that does not answer NVML
    """

    index: int
    model: str
    generation: str | None = None
    pci_address: str | None = None
    serial: str | None = None
    memory_total_mib: int | None = None
    memory_used_mib: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    utilisation_percent: float | None = None
    firmware: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class Reading:
    """What a vendor's tool or library says.

    tool: "xpu-smi", "xpu_smi" or "NVML"
    command: the last command that was run; empty for a library
    outcome: "ok" it answered (with any number of cards, including none); "missing" it is not here; "failed" it ended with an
        error; "hung" it was stopped at the timeout; "unreadable" nothing of its output was understood; "foreign" it is another
        vendor's tool with the same name
    detail: one sentence for the user
    driver: its version as printed; None when it is not shown
    unread: what was said of cards and not understood, line by line; of an output of which nothing was, all of it
    """

    tool: str
    command: tuple[str, ...]
    outcome: Outcome
    detail: str
    driver: str | None = None
    cards: tuple[Card, ...] = ()
    unread: tuple[str, ...] = ()


def generation_of(model: str) -> str | None:
    """The chip's generation from a Kunlun model name. Source: the device model table of the XRE 4 headers."""
    for pattern, generation in ((r"K[12]00\b", "KL1"), (r"RG?\d{3}\b", "KL2"), (r"P800\b", "KL3")):
        if re.match(pattern, model):
            return generation
    return None


def normal_address(text: str) -> str:
    """A PCI address with a four-digit domain in lower case: 00000000:9A:00.0 becomes 0000:9a:00.0."""
    domain, bus, function = text.lower().split(":")
    return f"{domain[-4:]}:{bus}:{function}"


def format_card_count(number: int) -> str:
    """The number with its unit: 1 card, 8 cards."""
    return N_("1 card") if number == 1 else N_("{number} cards", number=number)
