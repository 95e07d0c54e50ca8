"""Kunlun's xpu-smi: one reading from all formats of its output.

Two generations of the tool share two names. The KL1/KL2 tool prints a table with one line per card and has `-m`; the KL3
tool looks like nvidia-smi, with three lines per card, and has `-m` and `-q`. query, machine and tables parse the formats,
as documented by the vendor; not run on a card.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, replace

from xpulab.doctor.cards import Card, Reading, Report, format_card_count
from xpulab.doctor.tool import TIMEOUT, run_tool
from xpulab.doctor.xpu_smi.machine import parse_machine
from xpulab.doctor.xpu_smi.query import parse_query
from xpulab.doctor.xpu_smi.tables import parse_table
from xpulab.messages import N_

NAMES = ("xpu-smi", "xpu_smi")
INTEL = re.compile(r"Intel(\(R\))? XPU|oneAPI Level Zero")


def read_xpu_smi(timeout: float = TIMEOUT) -> Reading:
    """Calls the first of xpu-smi and xpu_smi on PATH that is Kunlun's. It never changes the state of a card.

    It runs `-q` and `-m`, and the plain table only when `-q` is unknown or unreadable. The outcome is "unreadable" when
    the formats show different cards, and "foreign" for Intel's tool with the same name.
    """
    readings = []
    for name in NAMES:
        reading = _read_tool(name, timeout)
        if reading.outcome in ("ok", "hung"):
            return reading
        readings.append(reading)
    if all(reading.outcome == "missing" for reading in readings):
        return replace(readings[0], detail=N_("neither xpu-smi nor xpu_smi is on PATH"))
    return next(reading for reading in readings if reading.outcome != "missing")


def _read_tool(name: str, timeout: float) -> Reading:
    """Calls one tool by name for its formats, and combines those that could be parsed."""
    query, machine, table = (name, "-q"), (name, "-m"), (name,)
    reports: dict[tuple[str, ...], Report] = {}
    for command, parse in ((query, parse_query), (machine, parse_machine), (table, parse_table)):
        if command == table and query in reports:
            break
        answer = _read_format(command, parse, timeout)
        if isinstance(answer, Report):
            reports[command] = answer
        elif answer.outcome in ("missing", "hung", "foreign"):
            return answer
        else:
            failed = answer
    return _combined(name, reports) if reports else failed


def _read_format(command: tuple[str, ...], parse: Callable[[str], Report], timeout: float) -> Report | Reading:
    """The parsed output of one command, or a reading whose outcome and detail are the reason why there is none."""
    run = run_tool(command, timeout)
    if run.outcome != "hung" and INTEL.search(run.output):
        return Reading(command[0], command, "foreign", N_(f"{command[0]} on PATH is Intel's tool with that name, not Kunlun's"))
    if run.outcome != "ok":
        return Reading(command[0], command, run.outcome, run.detail)
    try:
        return parse(run.output)
    except ValueError as error:
        detail = N_(f"the output of {' '.join(command)} has no known format: {error}")
        return Reading(command[0], command, "unreadable", detail)


def _combined(name: str, reports: dict[tuple[str, ...], Report]) -> Reading:
    """One reading from the parsed formats; "unreadable" when they show different cards."""
    (command, report), *others = reports.items()
    for other_command, other in others:
        if _addresses(report) != _addresses(other):
            detail = (
                f"{' '.join(command)} and {' '.join(other_command)} show different cards: "
                f"{format_card_count(len(report.cards))} {_addresses(report)}, "
                f"{format_card_count(len(other.cards))} {_addresses(other)}"
            )
            return Reading(name, other_command, "unreadable", detail)
        report = _filled(report, other)
    detail = N_(f"{name} shows {format_card_count(len(report.cards))}, driver {report.driver or 'unknown'}")
    return Reading(name, command, "ok", detail, report.driver, report.runtime, report.cards)


def _addresses(report: Report) -> list[str]:
    return sorted(card.pci_address or "" for card in report.cards)


def _filled(report: Report, other: Report) -> Report:
    """The report with missing values taken from the other one. Cards are matched by their index."""
    by_index = {card.index: card for card in other.cards}
    cards = []
    for card in report.cards:
        twin = by_index.get(card.index, card)
        gaps = [field.name for field in fields(Card) if getattr(card, field.name) is None]
        cards.append(replace(card, **{gap: getattr(twin, gap) for gap in gaps}))
    return Report(report.driver or other.driver, report.runtime or other.runtime, tuple(cards))
