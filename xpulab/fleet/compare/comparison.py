"""The result of a comparison, the same for machines, releases and devices: what the console, the page and JSON show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xpulab import __version__
from xpulab.fleet.finding import Finding
from xpulab.fleet.runs import Run

SCHEMA = 1

FLEET, UPGRADE, PARITY = "fleet", "upgrade", "parity"
KINDS = (FLEET, UPGRADE, PARITY)
"""Machines of one type, one machine before and after a change, and several devices."""

Cell = str | int | float | None


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
            return "nothing found"
        count = f"{len(self.findings)} finding{'' if len(self.findings) == 1 else 's'}"
        nodes = {finding.node for finding in self.findings} - {""}
        unreadable = nodes - {run.name for run in self.runs}
        return f"{count} on {len(nodes)} of {len(self.runs) + len(unreadable)} runs" if self.kind == FLEET and nodes else count

    @property
    def summary(self) -> str:
        """The headline, and how much of each kind was found."""
        counts = Counter(finding.kind for finding in self.findings)
        return ": ".join(filter(None, [self.headline, ", ".join(f"{count} {kind}" for kind, count in counts.items())]))

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
        "findings": [_finding(finding) for finding in comparison.findings],
        "improvements": [_finding(finding) for finding in comparison.improvements],
        "notes": list(comparison.notes),
        "tables": [asdict(table) for table in comparison.tables],
    }


def _run(run: Run) -> dict[str, Any]:
    result = run.result
    fields = ("device", "level", "cards", "outcome", "date")
    return {"name": run.name, "source": str(run.source), **{field: result[field] for field in fields}}


def _finding(finding: Finding) -> dict[str, str]:
    return asdict(finding)


def chapter_seconds(runs: Sequence[Run]) -> dict[str, list[tuple[float, str]]]:
    """By notebook the seconds that each run took, with the run's name; shown, never judged: other programs change them."""
    seconds: dict[str, list[tuple[float, str]]] = {}
    for run in runs:
        for notebook in run.result["notebooks"]:
            seconds.setdefault(notebook["name"], []).append((notebook["seconds"], run.name))
    return seconds
