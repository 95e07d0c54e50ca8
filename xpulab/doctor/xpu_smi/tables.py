"""Parses the table that xpu-smi prints without options: one layout for each generation of the tool."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile

from xpulab.doctor.cards import Card, Report, generation_of, normal_address
from xpulab.doctor.xpu_smi.values import ADDRESS, parse_number, parse_whole_number, version_or_none


def parse_table(text: str) -> Report:
    """The table of either tool, distinguished by the header. Raises ValueError for anything else."""
    return parse_kl3_table(text) if "XPU-SMI" in text else parse_kl1_kl2_table(text)


def parse_kl3_table(text: str) -> Report:
    """The KL3 tool's table: three lines per card. The process table below it is ignored."""
    header = re.search(r"XPU-SMI\s+Driver Version:\s*(\S+)\s+XPU-RT Version:\s*(\S+)", text)
    if header is None:
        raise ValueError("no header 'XPU-SMI  Driver Version: ...  XPU-RT Version: ...'")
    lines = text.splitlines()
    cards = tuple(
        _kl3_card(first, lines[number + 1 : number + 3])
        for number, line in enumerate(lines)
        if (first := re.search(rf"\|\s*(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s*\|\s*({ADDRESS})\s", line))
    )
    driver, runtime = header.groups()
    return Report(version_or_none(driver), version_or_none(runtime), cards)


def parse_kl1_kl2_table(text: str) -> Report:
    """The KL1/KL2 tool's DEVICES table, narrow or wide: columns are identified by their headings."""
    cells = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines())
    rows = dropwhile(lambda row: row[:3] != ["DevID", "PCI Addr", "Model"], cells)
    headings = next(rows, None)
    if headings is None:
        raise ValueError("no header of a known xpu-smi table")
    # Horizontal lines are single cells; the VIDEO and PROCESSES tables below begin with a title in letters.
    body = takewhile(lambda row: not re.match(r"[A-Z]", row[0]), rows)
    cards = tuple(_kl1_kl2_card(dict(zip(headings, row, strict=True))) for row in body if row[0].isdigit())
    versions = (re.search(rf"^{key} Version:\s*(\S+)", text, re.MULTILINE) for key in ("Driver", "Runtime"))
    driver, runtime = (version_or_none(match[1]) if match else None for match in versions)
    return Report(driver, runtime, cards)


def _kl3_card(first: re.Match[str], rest: list[str]) -> Card:
    """A card from its three lines: index, model and address; temperature, power and memory; L3."""
    index, model, address = first.groups()
    if len(rest) < 2 or not all(line.strip().startswith("|") for line in rest):
        raise ValueError(f"the table ends in the middle of card {index}")
    used, total = _used_and_total(rest[0], "MiB")
    return Card(
        index=int(index),
        model=model,
        generation=generation_of(model),
        pci_address=normal_address(address),
        memory_total_mib=parse_whole_number(total),
        memory_used_mib=parse_whole_number(used),
        temperature_c=parse_number(_number_before(rest[0], r"C\b")),
        power_w=parse_number(_number_before(rest[0], r"W\s*/")),
        utilisation_percent=parse_number(_number_before(rest[0], "%")),
    )


def _kl1_kl2_card(cells: dict[str, str]) -> Card:
    """A card from its row. cells: by column heading. The wide table adds state, power, temperature, clock and firmware."""
    used, total = _used_and_total(cells.get("Memory", ""), "MB")
    return Card(
        index=int(cells["DevID"]),
        model=cells["Model"],
        generation=generation_of(cells["Model"]),
        pci_address=normal_address(cells["PCI Addr"]),
        serial=cells.get("SN"),
        memory_total_mib=parse_whole_number(total),
        memory_used_mib=parse_whole_number(used),
        temperature_c=parse_number(cells.get("Temp")),
        power_w=parse_number(cells.get("Power(W)")),
        utilisation_percent=parse_number(cells.get("UseRate")),
        firmware=cells.get("Firmware Version"),
        state={"N": "normal", "E": "error"}.get(cells.get("State", "")),
        clock_mhz=parse_number(cells.get("Freq(MHz)")),
    )


def _used_and_total(text: str, unit: str) -> tuple[str | None, str | None]:
    """The two numbers of "504 / 8064 MB" or "504MiB / 8064MiB"."""
    match = re.search(rf"(\d+)\s*(?:{unit})?\s*/\s*(\d+)\s*{unit}", text)
    return (match[1], match[2]) if match else (None, None)


def _number_before(text: str, unit: str) -> str | None:
    """The whole number before a unit."""
    match = re.search(rf"(\d+)\s*{unit}", text)
    return match[1] if match else None
