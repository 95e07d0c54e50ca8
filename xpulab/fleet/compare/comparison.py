"""What all comparisons share: the runs of a side, and the result, which the console, the page and JSON show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from xpulab import __version__
from xpulab.errors import InputError
from xpulab.fleet.finding import Finding, repeat
from xpulab.fleet.machine_type import is_known
from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records.record import COMPARED, RED, worst

SCHEMA = 1

FLEET, UPGRADE, PARITY = "fleet", "upgrade", "parity"
KINDS = (FLEET, UPGRADE, PARITY)
"""Machines of one type, one machine before and after a change, and several devices."""

NOT_PLANNED = N_("not planned")
KNOWN = ("known", "fixed")
"""Outcomes of a check that met a known issue."""

Cell = str | int | float | None

Place = tuple[str, str]
"""A notebook and a check."""


@dataclass(frozen=True)
class Table:
    """A table of a report. title: what to see. columns: their names. rows: as many cells each."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    kind: one of KINDS. subject: what was compared, in one line. runs: in the order in which they were named.
    findings: what is wrong or unlike, the worst kind first. improvements: what is right now, and was not before.
    notes: what makes the comparison weaker, one sentence each. tables: what was measured.
    """

    kind: str
    subject: str
    runs: tuple[Run, ...]
    findings: tuple[Finding, ...]
    improvements: tuple[Finding, ...]
    notes: tuple[str, ...]
    tables: tuple[Table, ...]

    @property
    def headline(self) -> str:
        """How much was found, on how many runs of a fleet."""
        if not self.findings:
            return N_("nothing found")
        number = len(self.findings)
        found = N_("1 finding") if number == 1 else N_(f"{number} findings")
        nodes = {finding.node for finding in self.findings} - {""}
        unreadable = nodes - {run.name for run in self.runs}
        many = len(self.runs) + len(unreadable)
        return N_(f"{found} on {len(nodes)} of {many} runs") if self.kind == FLEET and nodes else found

    @property
    def counts(self) -> Counter[str]:
        """By kind how many findings there are."""
        return Counter(finding.kind for finding in self.findings)

    @property
    def summary(self) -> str:
        """The headline, and how much of each kind was found."""
        return ": ".join(filter(None, [self.headline, ", ".join(f"{count} {kind}" for kind, count in self.counts.items())]))

    @property
    def scopes(self) -> tuple[str, ...]:
        """What runs on these devices say, and what they do not."""
        return tuple(dict.fromkeys(run.result["scope"] for run in self.runs))


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON values; data/schema/compare.schema.json describes them."""
    return {
        "schema": SCHEMA,
        "xpulab": __version__,
        "kind": comparison.kind,
        "subject": comparison.subject,
        "found": bool(comparison.findings),
        "summary": comparison.summary,
        "scopes": list(comparison.scopes),
        "runs": [_run(run) for run in comparison.runs],
        "findings": [asdict(finding) for finding in comparison.findings],
        "improvements": [asdict(finding) for finding in comparison.improvements],
        "notes": list(comparison.notes),
        "tables": [asdict(table) for table in comparison.tables],
    }


def _run(run: Run) -> dict[str, Any]:
    result = run.result
    fields = ("device", "level", "cards", "outcome", "date")
    return {"name": run.name, "source": str(run.source), **{field: result[field] for field in fields}}


def chapter_seconds(runs: Sequence[Run]) -> dict[str, list[tuple[float, str]]]:
    """By notebook the seconds that each run took, with the run's name; shown, never judged: other programs change them."""
    seconds: dict[str, list[tuple[float, str]]] = {}
    for run in runs:
        for notebook in run.result["notebooks"]:
            seconds.setdefault(notebook["name"], []).append((notebook["seconds"], run.name))
    return seconds


@dataclass(frozen=True)
class Side:
    """The runs of a release or a device, several of which show its spread. name: of the release or device."""

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
        """In how many runs the check is red, where that is not in all: "; in 1 of 3 runs"."""
        number, many = sum(check["outcome"] in RED for check in self.checks[place]), len(self.runs)
        return "" if number in (0, many) else f"; {N_(f'in {number} of {many} runs')}"

    def repeat(self, place: Place) -> str:
        """The command that repeats a check on this side."""
        return repeat(self.runs[0], *place)

    def compared_rows(self, place: Place) -> list[str]:
        """The cases of the rows that a run compared."""
        rows = (row for check in self.checks[place] for row in check["rows"])
        return list(dict.fromkeys(row["case"] for row in rows if row["outcome"] != "skipped"))

    def losses(self, place: Place) -> dict[str, list[Sequence[float]]]:
        """By case the losses that each run recorded at a check."""
        found: dict[str, list[Sequence[float]]] = {}
        for check in self.checks.get(place, ()):
            for each in check["measurements"] or ():
                if each["kind"] == "loss":
                    found.setdefault(each["case"], []).append(each["values"])
        return found

    def digest(self, place: Place) -> str | None:
        """The digest that all runs have; None where there is none, or they differ."""
        digests = {check["digest"] for check in self.checks.get(place, ())}
        return digests.pop() if len(digests) == 1 else None


def require_comparable(runs: Sequence[Run]) -> None:
    """Raises InputError when a run has not ended, does not say where it ran, or computed something else than the first."""
    for run in runs:
        if not run.is_finished:
            raise InputError(
                N_(f"{run.source}: the run has not ended (outcome {run.result['outcome']!r}); wait, or run it again")
            )
        if not is_known(run):
            raise InputError(N_(f"{run.source}: no notebook recorded where it ran; run it again"))
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
