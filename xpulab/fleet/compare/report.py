"""A comparison for people and programs: lines for a terminal, compare.html, one file that needs no network, compare.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import jinja2

from xpulab import __version__
from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import FLEET, PARITY, UPGRADE, Comparison, Table, to_json
from xpulab.fleet.finding import Finding
from xpulab.records.format import format_value

_TITLES = {FLEET: "Machines", UPGRADE: "Before and after", PARITY: "Devices"}
_SHOWN_NODES = 5
_SHOWN_CASES = 8
_WHOLE = 1000
"""Numbers from here on are shown without a fraction."""
_SHOWN_ROWS = 20
"""Of a table on the console; the page and JSON have all."""


def format_comparison(comparison: Comparison) -> str:
    """The comparison as lines of text."""
    lines = [f"{comparison.kind}: {comparison.subject}"]
    lines += [f"note: {note}" for note in comparison.notes]
    for table in comparison.tables:
        lines += ["", *_table(table)]
    for finding in comparison.improvements:
        lines += ["", *_finding([finding])] if finding is comparison.improvements[0] else _finding([finding])
    for group in grouped(comparison.findings):
        lines += ["", *_finding(group)]
    return "\n".join([*lines, "", *comparison.scopes, comparison.summary])


def write(comparison: Comparison, folder: Path) -> Path:
    """Write compare.json and compare.html into a folder, which is made; returns the page. Raises InputError if it cannot."""
    page = folder / "compare.html"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(to_json(comparison), indent=2, allow_nan=False) + "\n"
        (folder / "compare.json").write_text(content, encoding="utf-8")
        page.write_text(to_html(comparison), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}; name another folder with --out") from error
    return page


def to_html(comparison: Comparison) -> str:
    """The page of a comparison."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("xpulab.fleet.compare", "."), autoescape=True)
    environment.filters["cell"] = format_cell
    environment.filters["nodes"] = format_group_nodes
    environment.tests["numeric"] = lambda cell: isinstance(cell, int | float)
    return environment.get_template("page.html").render(
        comparison=comparison,
        title=_TITLES[comparison.kind],
        findings=grouped(comparison.findings),
        improvements=grouped(comparison.improvements),
        wrong_runs={finding.node for finding in comparison.findings},
        version=__version__,
    )


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings that belong together: of one kind at one place on several nodes, else of one kind and check on one node."""
    nodes: dict[tuple[str, str, str], set[str]] = {}
    for finding in findings:
        nodes.setdefault(_place(finding), set()).add(finding.node)
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        on_one = (
            (finding.kind, finding.node, finding.check) if finding.check else (finding.kind, finding.node, finding.sentence)
        )
        key = ("nodes", *_place(finding)) if len(nodes[_place(finding)]) > 1 and finding.check else ("cases", *on_one)
        groups.setdefault(key, []).append(finding)
    return list(groups.values())


def _place(finding: Finding) -> tuple[str, str, str]:
    return finding.kind, finding.check, finding.case


def format_group_nodes(group: Sequence[Finding]) -> str:
    """The nodes of findings that belong together."""
    nodes = list(dict.fromkeys(finding.node for finding in group if finding.node))
    more = f" and {len(nodes) - _SHOWN_NODES} more" if len(nodes) > _SHOWN_NODES else ""
    return ", ".join(nodes[:_SHOWN_NODES]) + more


def format_cell(cell: object) -> str:
    """A cell of a table as text."""
    if isinstance(cell, float) and abs(cell) >= _WHOLE:
        return f"{cell:.0f}"
    return format_value(cell) if isinstance(cell, float) else "" if cell is None else str(cell)


def _finding(group: Sequence[Finding]) -> Iterator[str]:
    first, nodes = group[0], format_group_nodes(group)
    yield f"{first.kind}{f', {nodes}' if nodes else ''}: {first.sentence}"
    if more := [finding.case for finding in group[1:] if finding.case != first.case]:
        yield f"    and {len(more)} more: {', '.join(more[:_SHOWN_CASES])}{', ...' if len(more) > _SHOWN_CASES else ''}"
    if first.repeat:
        yield f"    repeat: {first.repeat}"


def _table(table: Table) -> Iterator[str]:
    """The table with aligned columns, numbers to the right."""
    rows = [tuple(map(format_cell, row)) for row in table.rows[:_SHOWN_ROWS]]
    widths = [max(len(cell) for cell in column) for column in zip(table.columns, *rows, strict=True)]
    numeric = [all(isinstance(row[index], int | float | None) for row in table.rows) for index in range(len(widths))]
    yield f"{table.title}:"
    for row in (table.columns, *rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        yield f"  {'  '.join(cells)}".rstrip()
    if len(table.rows) > _SHOWN_ROWS:
        yield f"  and {len(table.rows) - _SHOWN_ROWS} more; the page and the JSON have all"
