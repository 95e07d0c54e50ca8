"""Kunlun's xpu-smi: what its four forms of output say, and one answer from all of them.

Two generations of the tool share two names. The KL1/KL2 tool prints a table of one line a card and knows `-m`; the KL3
tool looks like nvidia-smi, with three lines a card, and knows `-m` and `-q`. Each parser takes text and raises
ValueError, with a sentence, when it is not that form. Formats as documented; not run on a card.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import fields, replace
from itertools import dropwhile, takewhile

from xpulab.doctor.cards import Card, Reading, Report, format_card_count, generation_of, normal_address
from xpulab.doctor.tool import TIMEOUT, ToolRun, run_tool

NAMES = ("xpu-smi", "xpu_smi")
ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
INTEL = re.compile(r"Intel(\(R\))? XPU|oneAPI Level Zero")
MACHINE_FIELDS_AT_LEAST = 22
MOST_WATTS_OF_A_CARD = 2000


def read_xpu_smi(timeout: float = TIMEOUT) -> Reading:
    """Asks the first of xpu-smi and xpu_smi on PATH that is Kunlun's. It never changes a card's state.

    `-q` and `-m` are asked, the plain table only when `-q` is unknown or unreadable. Forms that show different cards
    make the reading "unreadable". Intel's tool of the same name makes it "foreign".
    """
    readings = []
    for name in NAMES:
        reading = _read_tool(name, timeout)
        if reading.outcome in ("ok", "hung"):
            return reading
        readings.append(reading)
    if all(reading.outcome == "missing" for reading in readings):
        return replace(readings[0], detail="neither xpu-smi nor xpu_smi is on PATH")
    return next(reading for reading in readings if reading.outcome != "missing")


def parse_query(text: str) -> Report:
    """The KL3 tool's `-q`: indented `key : value` lines below section headings, a block a card.

    The only form that states the SBL version by name. Source: a listing of a P800 PCIe node, UPSTREAM A.6.
    """
    driver, runtime = (_top_level(text, key) for key in ("Driver Version", "XPU-RT Version"))
    if driver is None or runtime is None:
        raise ValueError("no lines 'Driver Version' and 'XPU-RT Version'")
    head, *blocks = re.split(rf"^\s*XPU ({ADDRESS})\s*$", text, flags=re.MULTILINE)
    cards = tuple(
        _query_card(order, address, block) for order, (address, block) in enumerate(zip(blocks[::2], blocks[1::2], strict=True))
    )
    attached = _number(_top_level(head, "Attached XPUs"))
    if attached != len(cards):
        raise ValueError(f"it says 'Attached XPUs : {attached}' and lists {format_card_count(len(cards))}")
    return Report(_unless_absent(driver), _unless_absent(runtime), cards)


def parse_machine(text: str) -> Report:
    """`-m` of both tools: a line a card, at least 22 shell-quoted fields; newer tools write 32.

    0 PCI address, 2 device, 3 serial, 4 temperature C, 8 power W, 17 and 18 memory used and total MB,
    19 utilisation %, 20 firmware init:bootloader:main.cpld, 21 model. Source: `xpu_smi --help`, UPSTREAM A.6.
    """
    if not text.strip():
        raise ValueError("it is empty")
    return Report(None, None, tuple(_machine_card(line) for line in text.splitlines() if line.strip()))


def parse_table(text: str) -> Report:
    """The plain table of either tool, told apart by its header."""
    return parse_kl3_table(text) if "XPU-SMI" in text else parse_kl1_kl2_table(text)


def parse_kl3_table(text: str) -> Report:
    """The KL3 tool's table: three lines a card; below it a process table, which is not read."""
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
    return Report(_unless_absent(driver), _unless_absent(runtime), cards)


def parse_kl1_kl2_table(text: str) -> Report:
    """The KL1/KL2 tool's DEVICES table, narrow or wide: columns are found by their headings."""
    rows = ([cell.strip() for cell in line.strip().strip("|").split("|")] for line in text.splitlines())
    rows = dropwhile(lambda row: row[:3] != ["DevID", "PCI Addr", "Model"], rows)
    headings = next(rows, None)
    if headings is None:
        raise ValueError("no header of a known xpu-smi table")
    # Ruled lines are single cells; the VIDEO and PROCESSES tables below begin with a title of letters.
    body = takewhile(lambda row: not re.match(r"[A-Z]", row[0]), rows)
    cards = tuple(_kl1_kl2_card(dict(zip(headings, row, strict=True))) for row in body if row[0].isdigit())
    versions = (re.search(rf"^{key} Version:\s*(\S+)", text, re.MULTILINE) for key in ("Driver", "Runtime"))
    driver, runtime = (_unless_absent(match[1]) if match else None for match in versions)
    return Report(driver, runtime, cards)


def _read_tool(name: str, timeout: float) -> Reading:
    """Asks one tool by name for its forms, and combines those that could be read."""
    understood: dict[tuple[str, ...], Report] = {}
    refused: list[ToolRun] = []
    query, machine, table = (name, "-q"), (name, "-m"), (name,)
    for command, parse in ((query, parse_query), (machine, parse_machine), (table, parse_table)):
        if command == table and query in understood:
            break
        run = run_tool(command, timeout)
        if run.outcome in ("missing", "hung"):
            return Reading(name, command, run.outcome, run.detail)
        if INTEL.search(run.output):
            return Reading(name, command, "foreign", f"{name} on PATH is Intel's tool of that name, not Kunlun's")
        if run.outcome == "ok":
            try:
                understood[command] = parse(run.output)
                continue
            except ValueError as error:
                detail = f"{' '.join(command)} answered in no known format: {error}"
                run = replace(run, outcome="unreadable", detail=detail)
        refused.append(run)
    if not understood:
        return Reading(name, refused[-1].command, refused[-1].outcome, refused[-1].detail)
    return _combined(name, understood)


def _combined(name: str, understood: dict[tuple[str, ...], Report]) -> Reading:
    """One reading from the forms that were understood; "unreadable" when they show different cards."""
    (command, report), *others = understood.items()
    for other_command, other in others:
        if _addresses(report) != _addresses(other):
            detail = (
                f"{' '.join(command)} and {' '.join(other_command)} show different cards: "
                f"{format_card_count(len(report.cards))} {_addresses(report)}, "
                f"{format_card_count(len(other.cards))} {_addresses(other)}"
            )
            return Reading(name, other_command, "unreadable", detail)
        report = _filled(report, other)
    detail = f"{name} shows {format_card_count(len(report.cards))}, driver {report.driver or 'unknown'}"
    return Reading(name, command, "ok", detail, report.driver, report.runtime, report.cards)


def _addresses(report: Report) -> list[str]:
    return sorted(card.pci_address or "" for card in report.cards)


def _filled(report: Report, other: Report) -> Report:
    """The report, with what it leaves open taken from the other: cards are matched by their index."""
    by_index = {card.index: card for card in other.cards}
    cards = []
    for card in report.cards:
        twin = by_index.get(card.index, card)
        gaps = [field.name for field in fields(Card) if getattr(card, field.name) is None]
        cards.append(replace(card, **{gap: getattr(twin, gap) for gap in gaps}))
    return Report(report.driver or other.driver, report.runtime or other.runtime, tuple(cards))


def _query_card(order: int, address: str, block: str) -> Card:
    """A card from its block of `-q`: order is its place in the listing, used when there is no minor number."""
    section, values = "", {}
    for line in block.splitlines():
        key, colon, value = (part.strip() for part in line.partition(":"))
        if colon:
            values.setdefault((section, key), value)
        elif key:
            section = key
    model = values.get(("", "Product Name"), "unknown")
    minor = _number(values.get(("", "Minor Number")))
    return Card(
        index=order if minor is None else int(minor),
        model=model,
        generation=values.get(("", "Product Architecture"), generation_of(model)),
        pci_address=normal_address(address),
        serial=values.get(("", "Serial Number")),
        memory_total_mib=_whole(values.get(("Memory Usage", "Total"))),
        memory_used_mib=_whole(values.get(("Memory Usage", "Used"))),
        temperature_c=_number(values.get(("Temperature", "XPU Current Temp"))),
        power_w=_number(values.get(("Power Readings", "Power Draw"))),
        utilisation_percent=_number(values.get(("Utilization", "Xpu"))),
        firmware=values.get(("Firmware Version", "SBL Version")),
    )


def _machine_card(line: str) -> Card:
    """A card from its line of `-m`. An unquoted model with a space is put together again."""
    parts = shlex.split(line)
    if len(parts) < MACHINE_FIELDS_AT_LEAST or not re.fullmatch(ADDRESS, parts[0]):
        raise ValueError(f"a card has a PCI address and {MACHINE_FIELDS_AT_LEAST} fields or more, not {line[:60]!r}")
    model = " ".join([parts[21], *takewhile(lambda part: not part.isdigit(), parts[22:])])
    sbl = re.fullmatch(r"[^:]+:[^:]+:(\d+\.\d+)\S*", parts[20])
    return Card(
        index=int(parts[2]),
        model=model,
        generation=generation_of(model),
        pci_address=normal_address(parts[0]),
        serial=parts[3],
        temperature_c=_number(parts[4]),
        power_w=_watts(_number(parts[8])),
        memory_used_mib=_whole(parts[17]),
        memory_total_mib=_whole(parts[18]),
        utilisation_percent=_number(parts[19]),
        firmware=sbl[1] if sbl else None,
    )


def _kl3_card(first: re.Match[str], rest: list[str]) -> Card:
    """A card from its three lines: index, model and address; temperature, power and memory; L3."""
    index, model, address = first.groups()
    if len(rest) < 2 or not all(line.strip().startswith("|") for line in rest):
        raise ValueError(f"the table ends in the middle of card {index}")
    used, total = _pair(rest[0], "MiB")
    return Card(
        index=int(index),
        model=model,
        generation=generation_of(model),
        pci_address=normal_address(address),
        memory_total_mib=_whole(total),
        memory_used_mib=_whole(used),
        temperature_c=_number(_before(rest[0], r"C\b")),
        power_w=_number(_before(rest[0], r"W\s*/")),
        utilisation_percent=_number(_before(rest[0], "%")),
    )


def _kl1_kl2_card(cells: dict[str, str]) -> Card:
    """A card from its row, keyed by column heading. The wide table adds state, power, temperature and firmware."""
    used, total = _pair(cells.get("Memory", ""), "MB")
    return Card(
        index=int(cells["DevID"]),
        model=cells["Model"],
        generation=generation_of(cells["Model"]),
        pci_address=normal_address(cells["PCI Addr"]),
        serial=cells.get("SN"),
        memory_total_mib=_whole(total),
        memory_used_mib=_whole(used),
        temperature_c=_number(cells.get("Temp")),
        power_w=_number(cells.get("Power(W)")),
        utilisation_percent=_number(cells.get("UseRate")),
        firmware=cells.get("Firmware Version"),
        state={"N": "normal", "E": "error"}.get(cells.get("State", "")),
    )


def _top_level(text: str, key: str) -> str | None:
    match = re.search(rf"^\s*{key}\s*:\s*(.*?)\s*$", text, re.MULTILINE)
    return match[1] if match else None


def _unless_absent(version: str) -> str | None:
    return None if version in ("", "N/A") else version


def _pair(text: str, unit: str) -> tuple[str | None, str | None]:
    """Used and total of "504 / 8064 MB" and "504MiB / 8064MiB"."""
    match = re.search(rf"(\d+)\s*(?:{unit})?\s*/\s*(\d+)\s*{unit}", text)
    return (match[1], match[2]) if match else (None, None)


def _before(text: str, unit: str) -> str | None:
    match = re.search(rf"(\d+)\s*{unit}", text)
    return match[1] if match else None


def _number(text: str | None) -> float | None:
    """The number that a value begins with, "46 C" or "75.00 W"; None for N/A and the like."""
    match = re.match(r"-?\d+(\.\d+)?", text or "")
    return float(match[0]) if match else None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def _watts(power: float | None) -> float | None:
    """A K200 with driver 4.33 states mW where the help says W; no card draws more than MOST_WATTS_OF_A_CARD."""
    return power / 1000 if power is not None and power > MOST_WATTS_OF_A_CARD else power
