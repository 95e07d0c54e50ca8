"""Rates and amounts of memory of many machines: which are far from the median, on the bad side."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xpulab.devices import wheel_device
from xpulab.fleet.runs import Run
from xpulab.records.format import format_measurement
from xpulab.records.record import RED, Measurement

NEEDED = 3
"""Fewer machines have no outlier: of two that differ nothing says which is wrong."""

DEVIATIONS = 5.0
"""An outlier is so many robust standard deviations from the median: of 1,000 healthy nodes with 20 rates none is flagged."""

_TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""

_LEAST_SHARE = {"card": {"rate": 0.05, "memory": 0.02}, "shared cores": {"rate": 5 / 6, "memory": 0.1}}

KINDS = ("rate", "memory")

_MIB = 2**20


@dataclass(frozen=True)
class Measured:
    """A rate or an amount of memory that nodes measured under the same conditions.

    device: of all nodes. notebook, check, case, kind, unit: as in the measurement. values: by node, in this unit.
    """

    device: str
    notebook: str
    check: str
    case: str
    kind: str
    unit: str
    values: Mapping[str, float]

    def format(self, value: float) -> str:
        """A value with its unit."""
        return format_measurement(Measurement("", self.kind, self.unit, (value,))).strip()

    def for_a_table(self, value: float) -> float:
        """A value in the unit that a table shows."""
        return value / _MIB if self.unit == "bytes" else value

    @property
    def table_unit(self) -> str:
        """The unit that a table shows."""
        return "MiB" if self.unit == "bytes" else self.unit


@dataclass(frozen=True)
class Spread:
    """What the machines measured. median, deviation (median absolute, scaled), bound: in the unit of the values.

    bound: a rate below it, or an amount of memory above it, is an outlier.
    """

    median: float
    deviation: float
    bound: float


def least_share(kind: str, device: str) -> float:
    """The least difference that counts, as a share of the value: where all nodes measure the same, their deviation is 0.

    A CPU, which computes for simulated cards too, shares its cores with others: its rates differ by up to a factor of 6, as in
    baselines. Not measured on a card.
    """
    return _LEAST_SHARE["shared cores" if wheel_device(device) == "cpu" else "card"][kind]


def measured_by(runs: Sequence[Run]) -> list[Measured]:
    """The rates and the memory of runs on one device; those of red checks are left out."""
    found: dict[tuple[str, str, str, str, str, str], dict[str, float]] = defaultdict(dict)
    for run in runs:
        for notebook, check in run.checks():
            for each in check["measurements"] or ():
                if each["kind"] in KINDS and check["outcome"] not in RED:
                    conditions = repr(sorted(each["conditions"].items()))
                    where = (notebook["name"], check["name"], each["case"], each["kind"], each["unit"], conditions)
                    found[where][run.name] = each["values"][-1]
    return [Measured(runs[0].result["device"], *where[:5], values) for where, values in found.items()]


def spread_of(measured: Measured) -> Spread | None:
    """The spread of what the nodes measured; None when they are fewer than NEEDED."""
    if len(measured.values) < NEEDED:
        return None
    median = statistics.median(measured.values.values())
    deviation = _TO_STANDARD_DEVIATION * statistics.median(abs(value - median) for value in measured.values.values())
    distance = max(DEVIATIONS * deviation, least_share(measured.kind, measured.device) * median)
    return Spread(median, deviation, median - distance if measured.kind == "rate" else median + distance)


def outside(measured: Measured, spread: Spread) -> list[str]:
    """The nodes that are slower, or use more memory, than the bound."""
    is_rate = measured.kind == "rate"
    return [node for node, value in measured.values.items() if (value < spread.bound if is_rate else value > spread.bound)]
