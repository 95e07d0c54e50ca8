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
from xpulab.messages import N_, headed, labelled, language, padded, shown, width
from xpulab.records.format import format_value

_TITLES = {FLEET: N_("Machines"), UPGRADE: N_("Before and after"), PARITY: N_("Devices")}
_SHOWN_NODES = 5
_SHOWN_CASES = 8
_COLUMNS = (
    (N_("capability"), N_("chapter"), N_("check"), N_("case"), N_("nodes"), N_("median"), N_("deviation"), N_("bound")),
    (N_("worst"), N_("unit"), N_("node"), N_("least"), N_("most"), N_("outcome"), N_("runs"), N_("before"), N_("after")),
    (N_("change"), N_("same bits"), N_("of checks"), N_("allowed change"), N_("factor"), N_("issue"), N_("what"), N_("steps")),
    (N_("compared on"), N_("skipped on"), N_("reason"), N_("allowed")),
)
"""Names of columns, for the catalogue; those that contain the name of a side or a device stay English."""
_WHOLE = 1000
"""Numbers from here on are shown without a fraction."""
_SHOWN_ROWS = 20
"""Of a table on the console; the page and JSON have all."""


def format_comparison(comparison: Comparison) -> str:
    """The comparison as lines of text, in the chosen language."""
    lines = [f"{comparison.kind}: {shown(comparison.subject)}"]
    lines += [labelled("note: ", note) for note in comparison.notes]
    for table in comparison.tables:
        lines += ["", *_table(table)]
    for finding in comparison.improvements:
        lines += ["", *_finding([finding])] if finding is comparison.improvements[0] else _finding([finding])
    for group in grouped(comparison.findings):
        lines += ["", *_finding(group)]
    return "\n".join([*lines, "", *map(shown, comparison.scopes), format_counts(comparison)])


def format_counts(comparison: Comparison) -> str:
    """The summary of a comparison in the chosen language."""
    counts = ", ".join(f"{count} {shown(kind)}" for kind, count in comparison.counts.items())
    return headed(shown(comparison.headline), counts) if counts else shown(comparison.headline)


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
    environment.globals |= {"shown": shown, "headed": headed, "counts": format_counts}
    environment.globals["text"] = lambda message, **values: shown(message.format(**values))
    environment.filters["cell"] = format_cell
    environment.filters["nodes"] = format_group_nodes
    environment.tests["numeric"] = lambda cell: isinstance(cell, int | float)
    return environment.get_template("page.html").render(
        html_language={"en": "en", "zh": "zh-Hans"}[language()],
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
    names, more = ", ".join(nodes[:_SHOWN_NODES]), len(nodes) - _SHOWN_NODES
    text = f"{names} and {more} more" if more > 0 else names
    return shown(text)


def format_cell(cell: object) -> str:
    """A cell of a table as text, in the chosen language."""
    if isinstance(cell, float) and abs(cell) >= _WHOLE:
        return f"{cell:.0f}"
    return format_value(cell) if isinstance(cell, float) else "" if cell is None else shown(str(cell))


def _finding(group: Sequence[Finding]) -> Iterator[str]:
    first, nodes = group[0], format_group_nodes(group)
    yield headed(f"{shown(first.kind)}{f', {nodes}' if nodes else ''}", shown(first.sentence))
    if more := [finding.case for finding in group[1:] if finding.case != first.case]:
        number, cases = len(more), f"{', '.join(more[:_SHOWN_CASES])}{', ...' if len(more) > _SHOWN_CASES else ''}"
        yield f"    {headed(shown(f'and {number} more'), cases)}"
    if first.repeat:
        yield f"    {shown('repeat: ')}{first.repeat}"


def _table(table: Table) -> Iterator[str]:
    """The table with aligned columns, numbers to the right."""
    columns = tuple(map(shown, table.columns))
    rows = [tuple(map(format_cell, row)) for row in table.rows[:_SHOWN_ROWS]]
    widths = [max(map(width, column)) for column in zip(columns, *rows, strict=True)]
    numeric = [all(isinstance(row[index], int | float | None) for row in table.rows) for index in range(len(widths))]
    yield headed(shown(table.title), "").rstrip()
    for row in (columns, *rows):
        cells = (
            " " * (wide - width(cell)) + cell if right else padded(cell, wide)
            for cell, wide, right in zip(row, widths, numeric, strict=True)
        )
        yield f"  {'  '.join(cells)}".rstrip()
    if len(table.rows) > _SHOWN_ROWS:
        number = len(table.rows) - _SHOWN_ROWS
        yield f"  {shown(f'and {number} more; the page and the JSON have all')}"
