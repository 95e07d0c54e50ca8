"""A comparison for people and programs: lines for a terminal, and compare.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xpulab import __version__
from xpulab.errors import InputError
from xpulab.fleet.anomaly import Anomaly
from xpulab.fleet.runs import Run
from xpulab.messages import N_, headed, labelled, one_line, shown
from xpulab.verdict import RIGHT, UNDECIDED, WRONG

SCHEMA = 4
FLEET, TWO_RUNS = "fleet", "two runs"
_SHOWN_NODES, _SHOWN_CASES = 5, 8


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    kind: FLEET or TWO_RUNS. subject: what was compared, in one line. runs: in the order in which they were named.
    findings: what is wrong or unlike, the worst kind first.
    notes: what differs between the machines, and what makes the comparison weaker, one sentence each.
    share: how much was compared. undecided: what was not, and what would decide it, a sentence each.
    """

    kind: str
    subject: str
    runs: tuple[Run, ...]
    findings: tuple[Anomaly, ...]
    notes: tuple[str, ...]
    share: str
    undecided: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """RIGHT, WRONG or UNDECIDED of xpulab.verdict."""
        return WRONG if self.findings else UNDECIDED if self.undecided else RIGHT

    @property
    def headline(self) -> str:
        """How much was found, on how many runs of a fleet."""
        if not self.findings:
            return N_("nothing found, and undecided") if self.undecided else N_("nothing found")
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
        "verdict": comparison.verdict,
        "share": comparison.share,
        "undecided": list(comparison.undecided),
        "scopes": list(comparison.scopes),
        "runs": [_run(run) for run in comparison.runs],
        "findings": [asdict(finding) for finding in comparison.findings],
        "notes": list(comparison.notes),
    }


def _run(run: Run) -> dict[str, Any]:
    fields = ("device", "level", "cards", "outcome", "date")
    return {"name": run.name, "source": str(run.source), **{field: run.result[field] for field in fields}}


def format_comparison(comparison: Comparison) -> str:
    """The comparison as lines of text, in the chosen language."""
    lines = [f"{comparison.kind}: {shown(comparison.subject)}"]
    lines += [labelled("note: ", note) for note in comparison.notes]
    for group in _grouped(comparison.findings):
        lines += ["", *_finding(group)]
    if comparison.verdict == UNDECIDED:
        lines += ["", *(labelled("undecided: ", reason) for reason in comparison.undecided)]
    counts = ", ".join(
        f"{count} {shown(kind)}" for kind, count in Counter(finding.kind for finding in comparison.findings).items()
    )
    summary = headed(shown(comparison.headline), counts) if counts else shown(comparison.headline)
    return "\n".join(map(one_line, [*lines, "", *map(shown, comparison.scopes), shown(comparison.share), summary]))


def write(comparison: Comparison, folder: Path) -> Path:
    """Write compare.json into a folder, which is made; returns the file. Raises InputError if it cannot."""
    file = folder / "compare.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(to_json(comparison), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error
    return file


def _grouped(findings: Sequence[Anomaly]) -> list[list[Anomaly]]:
    """Those of one kind at one check, on all nodes and of all cases, are one entry."""
    groups: dict[tuple[str, str], list[Anomaly]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.check or finding.sentence), []).append(finding)
    return list(groups.values())


def _finding(group: Sequence[Anomaly]) -> Iterator[str]:
    """The first finding of a group in full, with all nodes; then the other cases."""
    first = group[0]
    nodes = _first_of([finding.node for finding in group if finding.node], _SHOWN_NODES)
    yield headed(f"{shown(first.kind)}{f', {nodes}' if nodes else ''}", shown(first.sentence))
    if cases := _first_of([finding.case for finding in group if finding.case not in (first.case, "")], _SHOWN_CASES):
        yield f"    {labelled('also: ', cases)}"
    if first.repeat:
        yield f"    {shown('repeat: ')}{first.repeat}"


def _first_of(names: Sequence[str], most: int) -> str:
    """The first different names, and how many more there are."""
    different = list(dict.fromkeys(names))
    text, more = ", ".join(different[:most]), len(different) - most
    return shown(N_("{text} and {more} more", text=text, more=more)) if more > 0 else text
