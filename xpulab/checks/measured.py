"""A table of what this device measures: each row is held against what the very same device measured before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.compare import Finding
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table
from xpulab.records import baselines
from xpulab.records.baselines import Baseline, Entry, NoBaseline
from xpulab.records.record import Measurement, Record

_LOOK_AT = {
    "slower": "slower than before: look for another program on the device, a lower clock or a narrower link, operators that "
    "fall back to the CPU",
    "faster": "too good: is there work that nobody waits for, or that is not done? If the baseline was measured on a busy "
    "machine, measure it again with `xpulab baseline`",
    "loss": "another loss than before with the same seed and data: look at what changed since, the wheel, the driver or a flag",
    "memory": "another amount of memory than before: look at what is kept or no longer kept, and at the wheel",
}


class Measured(Table):
    """Rows that are losses, rates or memory. Where there is no baseline a row is skipped, and says why.

    What was measured is kept in the record either way: `xpulab baseline` makes baselines of it.
    """

    def __init__(self, name: str, level: str, conditions: Mapping[str, Any]) -> None:
        super().__init__(name)
        self._level = level
        self._conditions = {what: str(value) for what, value in conditions.items()}
        self._measurements: list[Measurement] = []
        self._origins: dict[str, None] = {}

    def rate(self, case: str, measured: float, unit: str, *, control: float) -> None:
        """What is done in a second, in `unit`, "GB/s" for instance; neither much less nor much more than before."""
        self._hold(Measurement(case, "rate", unit, (float(measured),), self._conditions), (float(control),))

    def losses(self, case: str, measured: Sequence[float], *, control: Sequence[float]) -> None:
        """The losses of a training run, step by step, in nats; the run must be repeatable."""
        self._hold(Measurement(case, "loss", "nats", tuple(map(float, measured)), self._conditions), tuple(map(float, control)))

    def memory(self, case: str, measured: int, *, control: int) -> None:
        """The most that was in use, in bytes."""
        self._hold(Measurement(case, "memory", "bytes", (float(measured),), self._conditions), (float(control),))

    def record(self, means: str, seconds: float) -> Record:
        """As Table.record, with what was measured, and where the baselines come from."""
        record = replace(super().record(means, seconds), measurements=tuple(self._measurements))
        if self._origins:
            return replace(record, expected=f"as in {'; '.join(self._origins)}")
        reasons = {row.reason for row in self._rows}
        if record.outcome == "skipped" and len(reasons) == 1:  # said once, not for each row
            return replace(record, means=(why := reasons.pop()), reason=why)
        return record

    def _hold(self, measured: Measurement, control: tuple[float, ...]) -> None:
        numbers = measured.values and all(map(math.isfinite, measured.values))
        if not numbers or (measured.kind == "rate" and min(measured.values) <= 0):
            raise ValueError(f"{measured.case}: measured {measured.values or 'nothing'}, which is no measurement")
        self._measurements.append(measured)
        try:
            baseline = self._baseline()
            entry = baseline.entry(self._name, measured)
        except NoBaseline as none:
            self.skip(measured.case, str(none))
            return
        self._origins[baseline.origin] = None
        self._add(measured.case, measured.values, control, partial(_as_before, entry=entry))

    def _baseline(self) -> Baseline:
        if ledger.run_context is None:
            raise ValueError("choose a device first, with use_device: a baseline is of one")
        return baselines.find(ledger.run_context, self._level)


def _as_before(values: tuple[float, ...], entry: Entry) -> Finding:
    """Every number within the entry's bounds."""
    if entry.kind == "loss":
        seen = compare.close(values, entry.value, atol=entry.tolerance, rtol=0.0)
    else:
        (low,), (high,) = entry.bounds()
        seen = compare.between(values, low, high)
    if seen.accepted:
        return seen
    which = entry.kind if entry.kind != "rate" else "slower" if values < entry.value else "faster"
    return replace(seen, why=f"{seen.why}; {_LOOK_AT[which]}")
