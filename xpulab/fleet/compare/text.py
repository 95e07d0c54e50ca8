"""A comparison for a terminal: what was found first, with the command that repeats it, then what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpulab.fleet.compare.comparison import Comparison, Table
from xpulab.fleet.finding import Finding
from xpulab.records.format import format_value

_SHOWN_NODES = 5
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
    return "\n".join(
        [*lines, "", *comparison.scopes, f"found: {comparison.summary}" if comparison.findings else "nothing found"]
    )


def grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Findings of one kind at one place together: what is wrong on many nodes is one entry."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        where = (finding.kind, finding.check, finding.case) if finding.check else (finding.kind, finding.node, finding.sentence)
        groups.setdefault(where, []).append(finding)
    return list(groups.values())


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
