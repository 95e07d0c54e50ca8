"""Parses `xpu-smi -q` of the KL3 tool."""

from __future__ import annotations

import re

from xpulab.doctor.cards import Card, Report, format_card_count, generation_of, normal_address
from xpulab.doctor.xpu_smi.values import ADDRESS, parse_number, parse_whole_number, version_or_none


def parse_query(text: str) -> Report:
    """Indented `key : value` lines below section headings, one block per card. Raises ValueError for anything else.

    The only format with the SBL version under its name. Source: a listing of a P800 PCIe node.
    """
    driver, runtime = (_top_level(text, key) for key in ("Driver Version", "XPU-RT Version"))
    if driver is None or runtime is None:
        raise ValueError("no lines 'Driver Version' and 'XPU-RT Version'")
    head, *blocks = re.split(rf"^\s*XPU ({ADDRESS})\s*$", text, flags=re.MULTILINE)
    cards = tuple(
        _query_card(order, address, block) for order, (address, block) in enumerate(zip(blocks[::2], blocks[1::2], strict=True))
    )
    attached = parse_number(_top_level(head, "Attached XPUs"))
    if attached != len(cards):
        raise ValueError(f"'Attached XPUs : {attached}', but it lists {format_card_count(len(cards))}")
    return Report(version_or_none(driver), version_or_none(runtime), cards)


def _query_card(order: int, address: str, block: str) -> Card:
    """A card from its block. order: its place in the list, which is its index when there is no minor number."""
    section = ""
    values: dict[tuple[str, str], str] = {}
    for line in block.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon:
            values.setdefault((section, key), value)
        elif key:
            section = key
    model = values.get(("", "Product Name"), "unknown")
    minor = parse_number(values.get(("", "Minor Number")))
    return Card(
        index=order if minor is None else int(minor),
        model=model,
        generation=values.get(("", "Product Architecture"), generation_of(model)),
        pci_address=normal_address(address),
        serial=values.get(("", "Serial Number")),
        memory_total_mib=parse_whole_number(values.get(("Memory Usage", "Total"))),
        memory_used_mib=parse_whole_number(values.get(("Memory Usage", "Used"))),
        temperature_c=parse_number(values.get(("Temperature", "XPU Current Temp"))),
        power_w=parse_number(values.get(("Power Readings", "Power Draw"))),
        utilisation_percent=parse_number(values.get(("Utilization", "Xpu"))),
        firmware=values.get(("Firmware Version", "SBL Version")),
    )


def _top_level(text: str, key: str) -> str | None:
    """The value of the first line with this key."""
    match = re.search(rf"^\s*{key}\s*:\s*(.*?)\s*$", text, re.MULTILINE)
    return match[1] if match else None
