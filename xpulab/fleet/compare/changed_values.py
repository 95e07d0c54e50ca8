"""Rates, memory and losses of one machine that changed by more than its runs differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.fleet import rates
from xpulab.fleet.compare.sides import Side
from xpulab.fleet.finding import Finding
from xpulab.fleet.rates import Measured
from xpulab.records import baselines

SLOWER, MORE_MEMORY, OTHER_LOSS = "slower than its spread", "more memory", "other losses"
FASTER, LESS_MEMORY = "faster than its spread", "less memory"

SPREADS = 4
"""A rate is slower when the medians of both sides differ by more than so many spreads (largest minus smallest of a side)."""

LEAST_CHANGE = {"rate": 0.05, "memory": 0.02}
"""By kind the least change that counts, as a share of the median before. Not measured on a card."""

MOST_FACTOR = {"cpu": 6.0, "sim": 6.0, "gpu": 1.25, "xpu": 1.25}
"""A rate is slower when it differs by more than this factor, as in baselines, whatever the spread. With one run on a side
there is no spread, and nothing less counts."""

_KINDS = {
    ("rate", False): SLOWER,
    ("rate", True): FASTER,
    ("memory", True): MORE_MEMORY,
    ("memory", False): LESS_MEMORY,
}
"""By the kind of a measurement and whether it grew."""


def has_spread(before: Side, after: Side) -> bool:
    """Whether both sides have several runs, whose differences show the spread."""
    return min(len(before.runs), len(after.runs)) > 1


def pairs(before: Side, after: Side) -> Iterator[tuple[Measured, Measured]]:
    """The rates and memory that both sides measured under the same conditions."""
    later = {_key(each): each for each in rates.measured_by(after.runs)}
    for each in rates.measured_by(before.runs):
        if _key(each) in later:
            yield each, later[_key(each)]


def _key(measured: Measured) -> tuple[str, ...]:
    return measured.notebook, measured.check, measured.case, measured.kind, measured.unit


def allowed_change(earlier: Measured, later: Measured) -> float:
    """By how much the medians may differ, in the unit of the values: what runs of a side differ, within limits."""
    values = [list(each.values.values()) for each in (earlier, later)]
    median = statistics.median(values[0])
    least = LEAST_CHANGE[earlier.kind] * median
    most = least if earlier.kind == "memory" else median * (1 - 1 / MOST_FACTOR[earlier.device])
    if min(map(len, values)) == 1:
        return most
    return min(max(SPREADS * max(max(each) - min(each) for each in values), least), max(least, most))


def changed_rates(before: Side, after: Side) -> Iterator[Finding]:
    """Rates and amounts of memory whose medians differ by more than what is allowed, in either direction."""
    for earlier, later in pairs(before, after):
        medians = [statistics.median(each.values.values()) for each in (earlier, later)]
        allowed = allowed_change(earlier, later)
        change = medians[1] - medians[0]
        if abs(change) <= allowed:
            continue
        kind = _KINDS[earlier.kind, change > 0]
        shown = [earlier.format(value) for value in (*medians, allowed)]
        sentence = f"{earlier.check}, {earlier.case}: {shown[1]}, before {shown[0]}; a change of {shown[2]} is allowed"
        again = after.repeat((earlier.notebook, earlier.check))
        yield Finding("", earlier.check, earlier.case, kind, shown[1], shown[0], sentence, again)


def changed_losses(before: Side, after: Side) -> Iterator[Finding]:
    """Trajectories of losses that differ by more than the tolerance of a baseline from the runs before."""
    for where, checks in before.checks.items():
        for case, earlier in _trajectories(checks).items():
            later = _trajectories(after.checks.get(where, ())).get(case)
            if not later or len({len(values) for values in (*earlier, *later)}) > 1:
                continue
            spread = max(max(step) - min(step) for step in zip(*earlier, strict=True))
            allowed = baselines.tolerance_of("loss", earlier[0], spread, before.result["device"])
            difference = max(abs(one - other) for values in later for one, other in zip(values, earlier[0], strict=True))
            if difference > allowed:
                shown = f"to {later[0][-1]:.6g}", f"to {earlier[0][-1]:.6g}"
                sentence = f"{where[1]}, {case}: losses differ by {difference:.3g} nats, more than {allowed:.3g}"
                yield Finding("", where[1], case, OTHER_LOSS, *shown, sentence, after.repeat(where))


def _trajectories(checks: Sequence[Mapping[str, Any]]) -> dict[str, list[Sequence[float]]]:
    """By case and conditions the losses of each run."""
    found: dict[str, list[Sequence[float]]] = {}
    for check in checks:
        for each in check["measurements"] or ():
            if each["kind"] == "loss":
                found.setdefault(each["case"], []).append(each["values"])
    return found
