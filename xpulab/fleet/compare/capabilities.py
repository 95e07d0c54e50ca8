"""What runs say of each capability: it is right, right but for known issues, or red, and at which check first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xpulab.fleet.compare.comparison import Cell, Place, Side, Table
from xpulab.messages import N_
from xpulab.records.record import RED

GREEN, WITH_KNOWN, IS_RED, UNCOMPARED = N_("green"), N_("known"), N_("red"), N_("not compared")
"""Outcomes of a capability. "known": nothing is red, and a check met a known issue. "not compared": all checks were skipped."""

_BEST_FIRST = (GREEN, WITH_KNOWN, UNCOMPARED, IS_RED)
BETTER, WORSE = N_("better"), N_("worse")


@dataclass(frozen=True)
class Standing:
    """What one side says of a capability.

    outcome: GREEN, WITH_KNOWN, IS_RED or UNCOMPARED.
    checks: those that make it so, in reading order; empty for GREEN. Of a red one those that compared something come before
        those that never ran, since these are mostly a consequence.
    case, reason: of the first check, the reason in one line; the case is that of the first such row, "" without rows. Of a
        check that never ran the reason is what stopped its chapter.
    """

    outcome: str
    checks: tuple[str, ...] = ()
    case: str = ""
    reason: str = ""

    @property
    def first(self) -> str:
        """The check to look at first; "" where there is none."""
        return self.checks[0] if self.checks else ""


def standings(side: Side) -> dict[str, Standing]:
    """By capability, in reading order, what the runs of a side say of it; the worst run of several counts."""
    places: dict[str, list[Place]] = {}
    for place in side.checks:
        places.setdefault(place[1].split(".", 1)[0], []).append(place)
    return {capability: _standing(side, checks) for capability, checks in places.items()}


def _standing(side: Side, places: Sequence[Place]) -> Standing:
    red = [place for place in places if side.outcome(place) in RED]
    if red:
        red.sort(key=lambda place: not side.is_compared(place))
        return _with_reason(IS_RED, side, red)
    if known := [place for place in places if side.outcome(place) == "known"]:
        return _with_reason(WITH_KNOWN, side, known)
    return Standing(GREEN) if any(map(side.is_compared, places)) else _with_reason(UNCOMPARED, side, places)


def _with_reason(outcome: str, side: Side, places: Sequence[Place]) -> Standing:
    check = side.worst_check(places[0])
    row = next((row for row in check["rows"] if row["outcome"] == check["outcome"]), None)
    reason = (row or check)["reason"] or check["reason"] or ""
    if check["outcome"] == "missing":
        reason = why_it_stopped(side, places[0][0]) or reason
    return Standing(outcome, tuple(name for _, name in places), row["case"] if row else "", " ".join(reason.split()))


def why_it_stopped(side: Side, chapter: str) -> str:
    """The first reason of a red chapter that is not a list of its red checks; "" where there is none."""
    reasons = (each["reason"] or "" for run in side.runs for each in run.result["notebooks"] if each["name"] == chapter)
    first = next(filter(None, reasons), "").split("; ")[0]
    return "" if "checks are red: " in first else first


def format_standing(standing: Standing | None) -> str:
    """A cell: "green", "red: lora.merge and 2 more"; "not planned" where the side has no such capability."""
    if standing is None:
        return "not planned"
    if standing.outcome in (GREEN, UNCOMPARED):
        return standing.outcome
    more = len(standing.checks) - 1
    return f"{standing.outcome}: {standing.first}{f' and {more} more' if more else ''}"


def change(before: Standing | None, after: Standing | None) -> str:
    """BETTER or WORSE, by the order green, known, not compared, red; "" where the outcome is the same or on one side only."""
    if before is None or after is None or before.outcome == after.outcome:
        return ""
    return BETTER if _BEST_FIRST.index(after.outcome) < _BEST_FIRST.index(before.outcome) else WORSE


def capability_table(before: Side, after: Side) -> Table:
    """Each capability before and after; those whose outcome differs come first."""
    both = standings(before), standings(after)
    rows: list[tuple[Cell, ...]] = []
    for capability in dict.fromkeys((*both[0], *both[1])):
        pair = [side.get(capability) for side in both]
        rows.append((capability, *map(format_standing, pair), change(*pair)))
    rows.sort(key=lambda row: not row[-1])
    return Table(N_("Capabilities"), ("capability", before.name, after.name, "change"), tuple(rows))
