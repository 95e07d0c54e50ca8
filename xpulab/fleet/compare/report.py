"""A comparison for people and programs: lines for a terminal, and compare.json."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from xpulab.errors import InputError
from xpulab.fleet.anomaly import Anomaly
from xpulab.fleet.compare.comparison import Comparison, to_json
from xpulab.messages import N_, headed, labelled, one_line, shown

_SHOWN_NODES, _SHOWN_CASES = 5, 8


def format_comparison(comparison: Comparison) -> str:
    """The comparison as lines of text, in the chosen language."""
    lines = [f"{comparison.kind}: {shown(comparison.subject)}"]
    lines += [labelled("note: ", note) for note in comparison.notes]
    for group in _grouped(comparison.findings):
        lines += ["", *_finding(group)]
    counts = ", ".join(
        f"{count} {shown(kind)}" for kind, count in Counter(finding.kind for finding in comparison.findings).items()
    )
    summary = headed(shown(comparison.headline), counts) if counts else shown(comparison.headline)
    return "\n".join(map(one_line, [*lines, "", *map(shown, comparison.scopes), summary]))


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
