"""Where an executed notebook contradicts itself: a record that says something else than the line that its check displayed.

It finds a record that was edited alone, and damage. It cannot find an output that was edited as a whole: nothing in a notebook
is signed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from nbformat import NotebookNode

from xpulab.records.record import RED, Record, Row, is_compared, record_in, worst

_BOUND = re.compile(r"^([<>]) ([-+0-9.e]+|inf)$")


def contradictions(notebook: NotebookNode) -> Iterator[str]:
    """One sentence for each."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if record := record_in(output.get("metadata", {})):
                yield from (
                    f"{record.name}: {said}" for said in _in_output(record, str(output.get("data", {}).get("text/plain")))
                )


def _in_output(record: Record, shown: str) -> Iterator[str]:
    line = f"{record.outcome:<8}{record.name}  {record.means}"
    if shown.splitlines()[:1] != line.splitlines()[:1]:
        yield f"its record says {line.splitlines()[0]!r}, the notebook shows {shown.splitlines()[:1]}"
    if record.outcome in ("passed", "skipped") and (red := [row.case for row in record.rows if row.outcome in RED]):
        yield f"it is {record.outcome} with red rows: {', '.join(red)}"
    if record.rows and is_compared(record) and worst(row.outcome for row in record.rows) != record.outcome:
        yield f"it is {record.outcome}, its rows are not"
    yield from _in_result("", record)
    for row in record.rows:
        yield from _in_result(f"row {row.case}: ", row)


def _in_result(where: str, result: Record | Row) -> Iterator[str]:
    """What a passed check, or row, cannot be."""
    if result.outcome != "passed":
        return
    if not result.control.startswith("rejected"):
        yield f"{where}it is passed, its control is {result.control}"
    if not _is_within(result.measured, result.expected):
        yield f"{where}it is passed, measured {result.measured}, expected {result.expected}"


def _is_within(measured: float | str | None, expected: str) -> bool:
    """Whether a number is on the right side of a bound; True where there is no number or no bound."""
    bound = _BOUND.match(expected)
    if bound is None or isinstance(measured, str) or measured is None:
        return True
    limit = float(bound[2])
    near = abs(limit) * 1e-3  # the text of a bound is rounded
    return not math.isnan(measured) and (measured <= limit + near if bound[1] == "<" else measured >= limit - near)
