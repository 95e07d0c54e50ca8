"""The progress of a run: a live table in a terminal, plain lines elsewhere; in both what is red, when its cell has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

from nbformat import NotebookNode
from rich.console import Console
from rich.live import Live
from rich.table import Table

from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan
from xpulab.messages import N_, joined, shown
from xpulab.records.record import RED, Record, record_in

_NO_FINDING = {"NotebookIsRed", "KeyboardInterrupt"}
"""Exceptions that say nothing new: the verdict on checks that were shown, and the end by Ctrl-C or a time limit."""

_REASON_CHARACTERS = 200
"""Of a reason or an exception; the end of the run and the reports have all of it."""


class Progress(Protocol):
    """Shows what happens; used as a context."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *error: object) -> None: ...
    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        """A notebook starts a cell, counted from 1. Called from several threads."""

    def on_cell_end(self, plan: Plan, cell: NotebookNode) -> None:
        """A cell has ended, with its outputs: what is red in them is shown. Called from several threads."""

    def on_end(self, verdict: Verdict) -> None:
        """A notebook was judged."""


def progress_on(console: Console, plans: Sequence[Plan]) -> Progress:
    """The progress display that suits the console."""
    return _Table(console, plans) if console.is_terminal else _Lines(console)


class _Lines:
    """A line when a notebook starts and one when it ends, each with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console, self._started = console, time.monotonic()
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        self._console.print(f"[{elapsed:6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)

    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        with self._lock:
            if plan.name not in self._seen:
                self._seen.add(plan.name)
                self._say(shown(f"{plan.name}: started, {cells} cells, about {plan.expected_seconds:.0f} s"))

    def on_cell_end(self, plan: Plan, cell: NotebookNode) -> None:
        with self._lock:
            for line in red_lines(plan, cell):
                self._say(line)

    def on_end(self, verdict: Verdict) -> None:
        with self._lock:
            name, outcome, compared = verdict.name, verdict.outcome, verdict.compared
            self._say(shown(f"{name}: {outcome}, {compared} of {len(verdict.records)} checks compared"))


class _Table:
    """A row a notebook: its cell and the time that it has taken, renewed twice a second and when a cell starts."""

    def __init__(self, console: Console, plans: Sequence[Plan]) -> None:
        self._rows = {plan.name: (N_("waiting"), "", "") for plan in plans}
        self._started: dict[str, float] = {}
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        self._started.setdefault(plan.name, time.monotonic())
        self._rows[plan.name] = (N_("running"), shown(f"cell {cell} of {cells}"), "")
        self._live.refresh()

    def on_cell_end(self, plan: Plan, cell: NotebookNode) -> None:
        for line in red_lines(plan, cell):  # above the table
            self._live.console.print(line, highlight=False, markup=False, soft_wrap=True, style="bold red")

    def on_end(self, verdict: Verdict) -> None:
        took = f"{verdict.run.seconds:.1f} s" if verdict.run else ""
        checked = shown(f"{verdict.compared} of {len(verdict.records)} checks compared")
        self._rows[verdict.name] = (verdict.outcome, checked, took)

    def _render(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, (state, where, took) in dict(self._rows).items():
            since = self._started.get(name)
            elapsed = took or (f"{time.monotonic() - since:.1f} s" if since else "")
            style = {"passed": "green", "failed": "bold red", "missing": "bold red"}.get(state, "")
            table.add_row(name, f"[{style}]{shown(state)}[/]" if style else shown(state), where, elapsed)
        return table


def red_lines(plan: Plan, cell: NotebookNode) -> Iterator[str]:
    """In the chosen language a line for each red check of a cell, and one for an exception; else none."""
    records = [record for output in cell.get("outputs", []) if (record := record_in(output.get("metadata", {})))]
    red = [record for record in records if record.outcome in RED]
    for record in red:
        yield f"{plan.name}: {shown('RED')} {shown(record.outcome)} {record.name}: {_found(record)}"
    for output in cell.get("outputs", []):
        if output.output_type == "error" and output.ename not in _NO_FINDING:
            raised = f"{output.ename}: {output.evalue}" if output.evalue else output.ename
            yield f"{plan.name}: {shown('RED')} {shown(f'a cell raised {_short(raised)}')}"


def _found(record: Record) -> str:
    """What was measured, what was expected, and why it is red; of many cases the first red one."""
    row = next((row for row in record.rows if row.outcome in RED), None)
    case, found = (f"{row.case}: ", row) if row else ("", record)
    reason = found.reason or record.reason
    compared = shown(f"measured {found.measured}, expected {found.expected or '-'}")
    return f"{case}{joined([compared, _short(shown(reason))] if reason else [compared])}"


def _short(text: str) -> str:
    """In one line."""
    line = " ".join(text.split())
    return line if len(line) <= _REASON_CHARACTERS else f"{line[:_REASON_CHARACTERS]}..."
