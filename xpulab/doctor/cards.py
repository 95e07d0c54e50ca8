"""Accelerator cards as the vendors' tools describe them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from xpulab.messages import N_

Outcome = Literal["ok", "missing", "failed", "hung", "unreadable", "foreign"]


@dataclass(frozen=True)
class Card:
    """One compute device as a vendor's tool shows it. A field is None when the tool's output does not contain it.

    index: the number in /dev/xpuN, or nvidia-smi's index; a K200 board holds two devices, which share an address
    model: as printed, "P800 OAM", "R200-VF-5G", "NVIDIA A100-SXM4-80GB"
    generation: of the chip, "KL1", "KL2", "KL3" or "cuda"; None for a model that this suite does not know
    pci_address: domain:bus:device.function, lower case, four-digit domain
    serial: the board's serial number
    memory_total_mib, memory_used_mib: MiB (the KL1/KL2 tool and `-m` call the same numbers MB)
    temperature_c: degrees Celsius
    power_w: W
    utilisation_percent: 0 to 100
    clock_mhz: of what computes, MHz; the lowest where the tool shows several
    firmware: KL3 the SBL version, "1.48"; KL1 and KL2 the three-part version, "0001.0002.0022"
    state: "normal" or "error"; only the wide KL1/KL2 table has it
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
    clock_mhz: float | None = None


@dataclass(frozen=True)
class Report:
    """The content of one output format of a tool: driver and runtime as printed (None for N/A), and its cards."""

    driver: str | None
    runtime: str | None
    cards: tuple[Card, ...]


@dataclass(frozen=True)
class Reading:
    """The result of calling a vendor's tool.

    tool: the name that was searched on PATH
    command: the last command that was run
    outcome: "ok" it answered (with any number of cards, including none); "missing" not on PATH; "failed" it ended with
        an error; "hung" it was stopped at the timeout; "unreadable" its output has no known format, or two of its
        formats contradict each other; "foreign" it is another vendor's tool with the same name
    driver, runtime: versions as printed
    detail: one sentence for the user
    """

    tool: str
    command: tuple[str, ...]
    outcome: Outcome
    detail: str
    driver: str | None = None
    runtime: str | None = None
    cards: tuple[Card, ...] = ()


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
    return N_("1 card") if number == 1 else N_(f"{number} cards")
