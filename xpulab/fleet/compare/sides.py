"""Runs of one side of a comparison: a release, or a device. Several runs of a side show its spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.finding import repeat
from xpulab.fleet.machine_type import is_known
from xpulab.fleet.runs import Run
from xpulab.records.record import COMPARED, RED, worst

Place = tuple[str, str]
"""A notebook and a check."""


@dataclass(frozen=True)
class Side:
    """The runs of one side. name: of the release or device."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def checks(self) -> Mapping[Place, Sequence[Mapping[str, Any]]]:
        """By place the check of each run that planned it, in reading order."""
        found: dict[Place, list[Mapping[str, Any]]] = {}
        for run in self.runs:
            for notebook, check in run.checks():
                found.setdefault((notebook["name"], check["name"]), []).append(check)
        return found

    @property
    def chapters(self) -> list[str]:
        """The names of the notebooks, in reading order."""
        return list(dict.fromkeys(notebook["name"] for run in self.runs for notebook in run.result["notebooks"]))

    def red_chapters(self) -> dict[str, Mapping[str, Any]]:
        """By name the notebooks that are red in a run although none of their checks is: they stopped, or show other text."""
        return {
            notebook["name"]: notebook
            for run in self.runs
            for notebook in run.result["notebooks"]
            if notebook["outcome"] in ("failed", "missing") and not any(check["outcome"] in RED for check in notebook["checks"])
        }

    @property
    def result(self) -> Mapping[str, Any]:
        """The result of the first run."""
        return self.runs[0].result

    def outcome(self, place: Place) -> str:
        """The worst outcome of all runs; "not planned" where none has the check."""
        checks = self.checks.get(place)
        return worst(check["outcome"] for check in checks) if checks else NOT_PLANNED

    def is_red(self, place: Place) -> bool:
        """Whether the check is red in at least one run."""
        return self.outcome(place) in RED

    def is_compared(self, place: Place) -> bool:
        """Whether the check compared something."""
        return self.outcome(place) in COMPARED

    def worst_check(self, place: Place) -> Mapping[str, Any]:
        """The check of the first run that has the worst outcome."""
        return next(check for check in self.checks[place] if check["outcome"] == self.outcome(place))

    def how_often(self, place: Place) -> str:
        """In how many runs the check is red, where that is not in all: "in 1 of 3 runs"."""
        red = sum(check["outcome"] in RED for check in self.checks[place])
        return "" if red in (0, len(self.runs)) else f" in {red} of {len(self.runs)} runs"

    def repeat(self, place: Place) -> str:
        """The command that repeats a check on this side."""
        return repeat(self.runs[0], *place)

    def digest(self, place: Place) -> str | None:
        """The digest that all runs have; None where there is none, or they differ."""
        digests = {check["digest"] for check in self.checks.get(place, ())}
        return digests.pop() if len(digests) == 1 else None


NOT_PLANNED = "not planned"


def require_comparable(runs: Sequence[Run]) -> None:
    """Raises InputError when a run has not ended, does not say where it ran, or computed something else than the first."""
    for run in runs:
        if not run.is_finished:
            raise InputError(f"{run.source}: the run has not ended (outcome {run.result['outcome']!r}); wait, or run it again")
        if not is_known(run):
            raise InputError(f"{run.source}: no notebook recorded where it ran; run it again")
    first = runs[0]
    for run in runs[1:]:
        for field in ("level", "seed"):
            if run.result.get(field) != first.result.get(field):
                raise InputError(
                    f"{run.source}: {field} {run.result.get(field)}, but that of {first.source} is {first.result.get(field)}; "
                    f"run it again with --{field} {first.result.get(field)}"
                )


def all_places(sides: Sequence[Side]) -> list[Place]:
    """The places of all sides, in reading order."""
    return list(dict.fromkeys(place for side in sides for place in side.checks))
