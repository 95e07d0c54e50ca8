"""Rates and amounts of memory of many machines: which are far from the median, on the bad side."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

NEEDED = 3
"""Fewer machines have no outlier: of two that differ nothing says which is wrong."""

DEVIATIONS = 5.0
"""An outlier is so many robust standard deviations from the median: of 1,000 healthy nodes with 20 rates none is flagged."""

_TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""

LEAST_SHARE = {("rate", "card"): 0.05, ("rate", "shared cores"): 0.5, ("memory", "card"): 0.02, ("memory", "shared cores"): 0.1}
"""By kind and device the least distance from the median, as a share of it, since equal values have no deviation. A CPU, which
computes for simulated cards too, shares its cores with others. Not measured on a card."""


@dataclass(frozen=True)
class Spread:
    """What the machines measured. median, deviation (median absolute, scaled), bound: in the unit of the values.

    bound: a rate below it, or an amount of memory above it, is an outlier.
    """

    median: float
    deviation: float
    bound: float


def spread_of(values: Mapping[str, float], kind: str, device: str) -> Spread:
    """The spread of what NEEDED nodes or more measured. kind: "rate" or "memory"."""
    median = statistics.median(values.values())
    deviation = _TO_STANDARD_DEVIATION * statistics.median(abs(value - median) for value in values.values())
    where = "card" if device in ("gpu", "xpu") else "shared cores"
    distance = max(DEVIATIONS * deviation, LEAST_SHARE[kind, where] * median)
    return Spread(median, deviation, median - distance if kind == "rate" else median + distance)


def outside(values: Mapping[str, float], spread: Spread, kind: str) -> list[str]:
    """The nodes that are slower, or use more memory, than the bound."""
    return [node for node, value in values.items() if (value < spread.bound if kind == "rate" else value > spread.bound)]
