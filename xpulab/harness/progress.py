"""The progress of a run in lines: what starts, what is red as soon as its cell has ended, what ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from nbformat import NotebookNode
from rich.console import Console

from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.messages import N_, joined, shown
from xpulab.records.record import RED, Record, record_in

_NO_FINDING = {"NotebookIsRed", "KeyboardInterrupt"}
"""Exceptions that say nothing new: the verdict on checks that were shown, and the end by Ctrl-C or a time limit."""

_REASON_CHARACTERS = 200
"""Of a reason or an exception; the end of the run and the reports have all of it."""


class Progress:
    """A line when a notebook starts, for what is red when its cell has ended, and when it ends; with the seconds so far."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()
        self._started: set[str] = set()
        self._lock = threading.Lock()

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        self._console.print(f"[{elapsed:6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)

    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        """A notebook starts a cell, counted from 1. Called from several threads."""
        with self._lock:
            if plan.name not in self._started:
                self._started.add(plan.name)
                self._say(
                    shown(
                        N_(
                            "{name}: started, {cells} cells, about {expected_seconds} s",
                            name=plan.name,
                            cells=cells,
                            expected_seconds=f"{plan.expected_seconds:.0f}",
                        )
                    )
                )

    def on_cell_end(self, plan: Plan, cell: NotebookNode) -> None:
        """A cell has ended, with its outputs. Called from several threads."""
        with self._lock:
            for line in red_lines(plan, cell):
                self._say(line)

    def on_end(self, verdict: Verdict) -> None:
        """A notebook was judged."""
        with self._lock:
            name, outcome, compared = verdict.name, verdict.outcome, verdict.compared
            self._say(
                shown(
                    N_(
                        "{name}: {outcome}, {compared} of {records} checks compared",
                        name=name,
                        outcome=outcome,
                        compared=compared,
                        records=len(verdict.records),
                    )
                )
            )


def red_lines(plan: Plan, cell: NotebookNode) -> Iterator[str]:
    """In the chosen language a line for each red check of a cell, and one for an exception; else none."""
    records = [record for output in cell.get("outputs", []) if (record := record_in(output.get("metadata", {})))]
    red = [record for record in records if record.outcome in RED]
    for record in red:
        yield f"{plan.name}: {shown('RED')} {shown(record.outcome)} {record.name}: {_found(record)}"
    for output in cell.get("outputs", []):
        if output.output_type == "error" and output.ename not in _NO_FINDING:
            raised = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
            yield f"{plan.name}: {shown('RED')} {shown(N_('a cell raised {raised}', raised=_short(raised)))}"


def _found(record: Record) -> str:
    """What was measured, what was expected, and why it is red; of many cases the first red one."""
    row = next((row for row in record.rows if row.outcome in RED), None)
    case, found = (f"{row.case}: ", row) if row else ("", record)
    reason = found.reason or record.reason
    compared = shown(N_("measured {measured}, expected {expected}", measured=found.measured, expected=found.expected or "-"))
    return f"{case}{joined([compared, _short(shown(reason))] if reason else [compared])}"


def _short(text: str) -> str:
    """In one line."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[:_REASON_CHARACTERS]}..."
