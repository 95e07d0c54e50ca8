"""Parses `xpu-smi -m`, which both generations of the tool have."""

from __future__ import annotations

import re
import shlex
from itertools import takewhile

from xpulab.doctor.cards import Card, Report, generation_of, normal_address
from xpulab.doctor.xpu_smi.values import ADDRESS, parse_number, parse_whole_number

MIN_FIELDS = 22
MAX_WATTS = 2000
"""No card draws more power."""


def parse_machine(text: str) -> Report:
    """One line per card with at least 22 shell-quoted fields; newer tools write 32. Raises ValueError for anything else.

    0 PCI address, 2 device, 3 serial, 4 temperature C, 8 power W, 9 to 14 clocks MHz, 17 and 18 memory used and total MB,
    19 utilisation %, 20 firmware init:bootloader:main.cpld, 21 model. Source: `xpu_smi --help`.
    """
    if not text.strip():
        raise ValueError("the output is empty")
    return Report(None, None, tuple(_machine_card(line) for line in text.splitlines() if line.strip()))


def _machine_card(line: str) -> Card:
    """A card from its line. An unquoted model with a space is joined again."""
    parts = shlex.split(line)
    if len(parts) < MIN_FIELDS or not re.fullmatch(ADDRESS, parts[0]):
        raise ValueError(f"expected a PCI address and at least {MIN_FIELDS} fields per card, found {line[:60]!r}")
    model = " ".join([parts[21], *takewhile(lambda part: not part.isdigit(), parts[22:])])
    sbl = re.fullmatch(r"[^:]+:[^:]+:(\d+\.\d+)\S*", parts[20])
    return Card(
        index=int(parts[2]),
        model=model,
        generation=generation_of(model),
        pci_address=normal_address(parts[0]),
        serial=parts[3],
        temperature_c=parse_number(parts[4]),
        power_w=_watts(parse_number(parts[8])),
        memory_used_mib=parse_whole_number(parts[17]),
        memory_total_mib=parse_whole_number(parts[18]),
        utilisation_percent=parse_number(parts[19]),
        firmware=sbl[1] if sbl else None,
        clock_mhz=_lowest_clock(parts[9:15]),
    )


def _lowest_clock(values: list[str]) -> float | None:
    """The lowest of a card's clocks, MHz: a clock of 0 belongs to no unit of this card."""
    return min((clock for clock in map(parse_number, values) if clock), default=None)


def _watts(power: float | None) -> float | None:
    """Power in W. A K200 with driver 4.33 prints mW, although its help says W."""
    return power / 1000 if power is not None and power > MAX_WATTS else power
