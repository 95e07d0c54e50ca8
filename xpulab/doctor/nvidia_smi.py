"""Reads the comma-separated output of NVIDIA's nvidia-smi. Format as documented by NVIDIA; not run on a card."""

from __future__ import annotations

import csv

from xpulab.doctor.cards import Card, Reading, Report, format_card_count, normal_address
from xpulab.doctor.tool import TIMEOUT, run_tool
from xpulab.messages import N_

FIELDS = (
    "index",
    "name",
    "pci.bus_id",
    "serial",
    "memory.total",
    "memory.used",
    "temperature.gpu",
    "power.draw",
    "utilization.gpu",
    "clocks.sm",
    "driver_version",
)


def read_nvidia_smi(timeout: float = TIMEOUT) -> Reading:
    """Asks nvidia-smi for its cards. Without a driver it ends with an error: outcome "failed"."""
    run = run_tool(("nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"), timeout)
    if run.outcome != "ok":
        return Reading("nvidia-smi", run.command, run.outcome, run.detail)
    try:
        report = parse_values(run.output)
    except ValueError as error:
        return Reading("nvidia-smi", run.command, "unreadable", N_(f"the output of nvidia-smi has no known format: {error}"))
    detail = N_(f"nvidia-smi shows {format_card_count(len(report.cards))}, driver {report.driver or 'unknown'}")
    return Reading("nvidia-smi", run.command, "ok", detail, report.driver, None, report.cards)


def parse_values(text: str) -> Report:
    """One line per card: the values of FIELDS in order, without units (MiB, C, W, %, MHz). "[N/A]" and the like become None.

    Raises ValueError with a sentence for anything else. Source: `nvidia-smi --help-query-gpu`.
    """
    rows = list(csv.reader(text.splitlines(), skipinitialspace=True))
    for row in rows:
        if len(row) != len(FIELDS):
            raise ValueError(f"expected {len(FIELDS)} values per card, found {', '.join(row)[:60]!r}")
    values = [dict(zip(FIELDS, map(_value_or_none, row), strict=True)) for row in rows]
    driver = values[0]["driver_version"] if values else None
    return Report(driver, None, tuple(map(_card, values)))


def _card(values: dict[str, str | None]) -> Card:
    address = values["pci.bus_id"]
    return Card(
        index=int(values["index"] or ""),
        model=values["name"] or "unknown",
        generation="cuda",
        pci_address=normal_address(address) if address else None,
        serial=values["serial"],
        memory_total_mib=_whole(values["memory.total"]),
        memory_used_mib=_whole(values["memory.used"]),
        temperature_c=_number(values["temperature.gpu"]),
        power_w=_number(values["power.draw"]),
        utilisation_percent=_number(values["utilization.gpu"]),
        clock_mhz=_number(values["clocks.sm"]),
    )


def _value_or_none(value: str) -> str | None:
    return None if value.startswith("[") or value in ("", "N/A") else value


def _number(value: str | None) -> float | None:
    return None if value is None else float(value)


def _whole(value: str | None) -> int | None:
    return None if value is None else int(value)
