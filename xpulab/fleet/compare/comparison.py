"""The result of a comparison, which the console and JSON show."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from xpulab import __version__
from xpulab.fleet.anomaly import Anomaly
from xpulab.fleet.runs import Run
from xpulab.messages import N_

SCHEMA = 3
FLEET, TWO_RUNS = "fleet", "two runs"


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    kind: FLEET or TWO_RUNS. subject: what was compared, in one line. runs: in the order in which they were named.
    findings: what is wrong or unlike, the worst kind first.
    notes: what differs between the machines, and what makes the comparison weaker, one sentence each.
    """

    kind: str
    subject: str
    runs: tuple[Run, ...]
    findings: tuple[Anomaly, ...]
    notes: tuple[str, ...]

    @property
    def headline(self) -> str:
        """How much was found, on how many runs of a fleet."""
        if not self.findings:
            return N_("nothing found")
        number = len(self.findings)
        found = N_("1 finding") if number == 1 else N_("{number} findings", number=number)
        nodes = {finding.node for finding in self.findings} - {""}
        many = len({run.name for run in self.runs} | nodes)
        return N_("{found} on {nodes} of {many} runs", found=found, nodes=len(nodes), many=many) if nodes else found

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
        "scopes": list(comparison.scopes),
        "runs": [_run(run) for run in comparison.runs],
        "findings": [asdict(finding) for finding in comparison.findings],
        "notes": list(comparison.notes),
    }


def _run(run: Run) -> dict[str, Any]:
    fields = ("device", "level", "cards", "outcome", "date")
    return {"name": run.name, "source": str(run.source), **{field: run.result[field] for field in fields}}
