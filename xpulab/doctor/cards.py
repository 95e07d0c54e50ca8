"""Accelerator cards as the vendors describe them: through a tool or a library."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xpulab.doctor.tool import ToolRun
from xpulab.messages import N_

Outcome = Literal["ok", "missing", "failed", "hung", "unreadable", "foreign"]
RAW_CHARACTERS = 4000
"""How much of an output is kept that was not understood."""
_ERRORS = r"/([^/]*(uncorr|double_bit)[^/]*|double_bit/total)$"  # the last one before Turing
_COUNTED = {
    "uncorrectable_errors": rf"(^|/)(?!aggregate)(volatile[^/]*|[^/]*ecc[^/]*){_ERRORS}",
    "uncorrectable_ever": rf"(^|/)aggregate[^/]*{_ERRORS}",
    "retired_pages": r"retired_pages($|/double_bit_(retirement/retired_count|ecc)$)|remapped_rows/(remapped_row_)?unc[^/]*$",
}
_STATED = (
    ("is_throttled", r"(sw|hw)_thermal_slowdown$|thermal_throttl", r"active|yes"),
    ("requires reset", r"reset_required$|requires_reset$", r"yes"),
    ("requires reset", r"recovery_action$", r"reset|reboot"),
    ("requires reset", "", r".*requires? reset.*"),  # NVIDIA's tool prints it in the place of any value
    ("error", r"remap[^/]*_failure|unrepairable_memory$", r"yes"),
)
"""By names as NVIDIA's drivers 390 to 580 print them. Of xpu-smi's only the counts of ECC are known, from documents."""


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
    firmware: KL3 the SBL version, "1.48"; KL1 and KL2 the three-part version, "0001.0002.0022"
    state: "error" of a card that does not answer, or whose memory cannot be repaired; "requires reset"; None of any other
    uncorrectable_errors: of its memory since the driver was loaded, by ECC. uncorrectable_ever: those of its life
    retired_pages: pages and rows of its memory that are no longer used after such errors
    is_throttled: whether its temperature slows it down
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
    firmware: str | None = None
    state: str | None = None
    uncorrectable_errors: int | None = None
    uncorrectable_ever: int | None = None
    retired_pages: int | None = None
    is_throttled: bool | None = None


@dataclass(frozen=True)
class Reading:
    """What a vendor's tool or library says.

    tool: "xpu-smi", "xpu_smi", "NVML" or "nvidia-smi"
    command: the last command that was run; empty for a library
    outcome: "ok" it answered (with any number of cards, including none); "missing" it is not here; "failed" it ended with an
        error; "hung" it was stopped at the timeout; "unreadable" nothing of its output was understood; "foreign" it is another
        vendor's tool with the same name
    detail: one sentence for the user
    driver: its version as printed; None when it is not shown
    unread: what was said of cards and not understood, line by line; with "unreadable" all of it
    raw: what it printed, the first RAW_CHARACTERS, where not all of it was understood; else empty
    """

    tool: str
    command: tuple[str, ...]
    outcome: Outcome
    detail: str
    driver: str | None = None
    cards: tuple[Card, ...] = ()
    unread: tuple[str, ...] = ()
    raw: str = ""

    @property
    def counts_cards(self) -> bool:
        """Whether its number of cards can be relied on: it answered, and all that it says of cards was understood."""
        return self.outcome == "ok" and not self.unread


def card_of(values: Mapping[str, str], order: int) -> Card:
    """The card that a tool shows with these values, as printed, by the names of Card or those of _health_of.

    Others: total, used and memory ("2112MiB / 98304") are of its memory, address is on the bus.
    order: its place in the output, which is its index where none is shown.
    """
    index, model = number_in(values.get("index")), values.get("model", "unknown")
    used, _, total = values.get("memory", "").partition("/")
    firmware = values.get("firmware", "")
    third = re.fullmatch(r"[^:]+:[^:]+:(\d+\.\d+)\S*", firmware)  # init:bootloader:main.cpld
    return Card(
        index=order if index is None else int(index),
        model=model,
        generation=values.get("generation") or generation_of(model),
        pci_address=normal_address(values["address"]) if "address" in values else None,
        serial=values.get("serial"),
        memory_total_mib=_whole(values.get("total", total)),
        memory_used_mib=_whole(values.get("used", used)),
        temperature_c=number_in(values.get("temperature_c")),
        power_w=number_in(values.get("power_w")),
        firmware=third[1] if third else firmware or None,
        **_health_of(values),
    )


def not_read(name: str, ran: ToolRun) -> Reading:
    """The reading of a run of which nothing was understood, with what it printed."""
    raw = ran.output[:RAW_CHARACTERS]
    if ran.outcome != "ok":
        return Reading(name, ran.command, ran.outcome, ran.detail, raw=raw)
    detail = N_("the output of {command} has no known format", command=" ".join(ran.command))
    return Reading(name, ran.command, "unreadable", detail, unread=tuple(raw.splitlines()), raw=raw)


def format_shown(name: str, cards: Sequence[Card], driver: str | None) -> str:
    """The detail of a reading: "xpu-smi shows 8 cards, driver 5.0.21.26"."""
    shown = format_card_count(len(cards))
    return N_("{name} shows {cards}, driver {driver}", name=name, cards=shown, driver=driver or "unknown")


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


def _health_of(values: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a Card about its health that a tool shows.

    values: by their names, "ecc_errors/volatile/dram_uncorrectable", in lower case and joined by underscores: as the tags of
    `nvidia-smi -q -x`, and as the sections and keys of `xpu-smi -q`. What begins with no whole number is not shown.
    """
    shown: dict[str, Any] = {"state": values.get("state")}
    for name, pattern in _COUNTED.items():
        counts = [re.match(r"\d+\b", text) for key, text in values.items() if re.search(pattern, key)]
        if any(counts):
            shown[name] = sum(int(count[0]) for count in counts if count)
    for name, pattern, meant in _STATED:
        if said := [text for key, text in values.items() if re.search(pattern, key)]:
            shown[name] = shown.get(name, False) or any(re.fullmatch(meant, text, re.IGNORECASE) for text in said)
    for state in ("error", "requires reset"):
        if shown.pop(state, False):
            shown["state"] = state
    return shown


def number_in(text: str | None) -> float | None:
    """The number at the start of a value, "46 C" or "75.00 W"; None for N/A and the like."""
    found = re.match(r"\s*(-?\d+(\.\d+)?)", text or "")
    return float(found[1]) if found else None


def _whole(text: str | None) -> int | None:
    number = number_in(text)
    return None if number is None else int(number)
