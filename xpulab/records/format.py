"""Measured values as text with units, the same in the notebook's verdict and in every report."""

from __future__ import annotations

from xpulab.messages import N_
from xpulab.records.record import Measurement, Record, RunContext

_MIB = 2**20


def format_measured(record: Record) -> str:
    """What a check measured: its measurements with units, else the range of its rows, else its value; "" for none."""
    if record.measurements:
        return "; ".join(map(format_measurement, record.measurements))
    numbers = [row.measured for row in record.rows if isinstance(row.measured, float)]
    if record.measured is not None and len(numbers) > 1:
        least, most = f"{min(numbers):.3g}", f"{max(numbers):.3g}"
        return f"{record.measured}, {least if least == most else f'{least} to {most}'}"
    return format_value(record.measured)


def format_machine(context: RunContext) -> list[str]:
    """What a banner says of a machine: card, processor, driver and the packages of Paddle."""
    facts = [str(context.machine[name]) for name in ("card", "processor") if context.machine.get(name)]
    facts += [N_("driver {driver}", driver=context.machine["driver"])] if context.machine.get("driver") else []
    return facts + [f"{package} {version}" for package, version in context.versions.items() if "paddle" in package]


def format_measurement(measurement: Measurement) -> str:
    """One measurement: "host to device 1.06 GB/s", "training 212.4 MiB", "losses 6.24 to 0.0115 nats over 100 steps"."""
    first, last = measurement.values[0], measurement.values[-1]
    if measurement.kind == "loss":
        return f"{measurement.case} {first:.3g} to {last:.3g} {measurement.unit} over {len(measurement.values)} steps"
    if measurement.unit == "bytes":
        return f"{measurement.case} {first / _MIB:.1f} MiB"
    if measurement.unit == "GFLOP/s" and first >= 1000:
        return f"{measurement.case} {first / 1000:.3g} TFLOP/s"
    return f"{measurement.case} {first:.4g} {measurement.unit}"


def format_value(measured: float | str | None) -> str:
    """A measured value with four digits."""
    if isinstance(measured, float):
        return f"{measured:.4g}"
    return "" if measured is None else str(measured)
