"""What a run says of each capability: it is right, right but for known issues, or red, and at which check first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records.record import COMPARED, RED

GREEN, WITH_KNOWN, IS_RED, UNCOMPARED = N_("green"), N_("known"), N_("red"), N_("not compared")
"""Outcomes of a capability. "known": nothing is red, and a check met a known issue. "not compared": all checks were skipped."""


@dataclass(frozen=True)
class Standing:
    """What a run says of a capability.

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


def standings(run: Run) -> dict[str, Standing]:
    """By capability, in reading order, what a run says of it."""
    checks: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for notebook, check in run.checks():
        checks.setdefault(check["name"].split(".", 1)[0], []).append((notebook["name"], check))
    return {capability: _standing(run, of_it) for capability, of_it in checks.items()}


def red_chapters(run: Run) -> dict[str, Mapping[str, Any]]:
    """By name the notebooks that are red although none of their checks is: they stopped, or show other text."""
    return {
        notebook["name"]: notebook
        for notebook in run.result["notebooks"]
        if notebook["outcome"] in ("failed", "missing") and not any(check["outcome"] in RED for check in notebook["checks"])
    }


def why_it_stopped(run: Run, chapter: str) -> str:
    """The reason of a red chapter that is not a list of its red checks; "" where there is none."""
    reasons = (each["reason"] or "" for each in run.result["notebooks"] if each["name"] == chapter)
    first = next(filter(None, reasons), "").split("; ")[0]
    return "" if "checks are red: " in first else first


def _standing(run: Run, checks: Sequence[tuple[str, Mapping[str, Any]]]) -> Standing:
    red = [each for each in checks if each[1]["outcome"] in RED]
    if red:
        red.sort(key=lambda each: each[1]["outcome"] not in COMPARED)
        return _with_reason(IS_RED, run, red)
    if known := [each for each in checks if each[1]["outcome"] in ("known", "predicted")]:
        return _with_reason(WITH_KNOWN, run, known)
    is_compared = any(check["outcome"] in COMPARED for _, check in checks)
    return Standing(GREEN) if is_compared else _with_reason(UNCOMPARED, run, checks)


def _with_reason(outcome: str, run: Run, checks: Sequence[tuple[str, Mapping[str, Any]]]) -> Standing:
    chapter, check = checks[0]
    row = next((row for row in check["rows"] if row["outcome"] == check["outcome"]), None)
    reason = (row or check)["reason"] or check["reason"] or ""
    if check["outcome"] == "missing":
        reason = why_it_stopped(run, chapter) or reason
    return Standing(outcome, tuple(check["name"] for _, check in checks), row["case"] if row else "", " ".join(reason.split()))
