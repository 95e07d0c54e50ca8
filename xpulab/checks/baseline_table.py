"""A table of losses, rates and memory: each row is compared with the baseline of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.compare import ComparisonResult
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table
from xpulab.messages import N_
from xpulab.records import baselines
from xpulab.records.baselines import Baseline, Entry, NoBaseline
from xpulab.records.record import Measurement, Record


class BaselineTable(Table):
    """Rows that are losses, rates or memory. A row without a baseline is skipped, with the reason.

    The record contains the measurements in both cases: `xpulab baseline` makes baselines of them.
    """

    def __init__(self, name: str, level: str, conditions: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._level = level
        self._conditions = {name: str(value) for name, value in conditions.items()}
        self._measurements: list[Measurement] = []
        self._origins: dict[str, None] = {}

    def rate(self, case: str, measured: float, unit: str, *, control: float) -> None:
        """A rate in `unit`, for instance "GB/s": neither much lower nor much higher than the baseline. Must be above 0."""
        self._measured(Measurement(case, "rate", unit, (float(measured),), self._conditions), (float(control),))

    def losses(self, case: str, measured: Sequence[float], *, control: Sequence[float]) -> None:
        """The losses of a training run, one for each step, in nats; the run must be repeatable."""
        measurement = Measurement(case, "loss", "nats", tuple(map(float, measured)), self._conditions)
        self._measured(measurement, tuple(map(float, control)))

    def memory(self, case: str, measured: int, *, control: int) -> None:
        """The peak memory, in bytes."""
        self._measured(Measurement(case, "memory", "bytes", (float(measured),), self._conditions), (float(control),))

    def record(self, means: str, seconds: float) -> Record:
        """As Table.record, with the measurements and the origin of the baselines."""
        record = replace(super().record(means, seconds), measurements=tuple(self._measurements))
        return replace(record, expected=f"as in {'; '.join(self._origins)}") if self._origins else record

    def _measured(self, measured: Measurement, control: tuple[float, ...]) -> None:
        """Add the row. Raises ValueError when the values are not a measurement."""
        finite = measured.values and all(map(math.isfinite, measured.values))
        if not finite or (measured.kind == "rate" and min(measured.values) <= 0):
            raise ValueError(f"{measured.case}: measured {measured.values or 'nothing'}, which is not a measurement")
        self._measurements.append(measured)
        try:
            baseline = self._baseline()
            entry = baseline.entry(self._name, measured)
        except NoBaseline as none:
            self.skip(measured.case, str(none))
            return
        self._origins[baseline.origin] = None
        self._compare(measured.case, measured.values, control, "", partial(_compare_with_entry, entry=entry))

    def _baseline(self) -> Baseline:
        if ledger.run_context is None:
            raise ValueError("choose a device first, with use_device: a baseline belongs to a device")
        return baselines.find(ledger.run_context, self._level)


def _compare_with_entry(values: tuple[float, ...], entry: Entry) -> ComparisonResult:
    """Every value is within the bounds of the entry."""
    if entry.kind == "loss":
        result = compare.close(values, entry.value, atol=entry.tolerance, rtol=0.0)
    else:
        (low,), (high,) = entry.bounds()
        result = compare.between(values, low, high)
    if result.accepted:
        return result
    remedy = N_("compare clock, load, driver, wheel and flags with those of the baseline, or measure it again: xpulab baseline")
    return replace(result, why=N_("{why}; {remedy}", why=result.why, remedy=remedy))
