"""The progress of a run: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table

from xpulab.harness.judge import Verdict
from xpulab.harness.plan import Plan


class Progress(Protocol):
    """Shows what happens; used as a context."""

    def __enter__(self) -> Progress: ...
    def __exit__(self, *error: object) -> None: ...
    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        """A notebook starts a cell, counted from 1. Called from several threads."""

    def on_end(self, verdict: Verdict) -> None:
        """A notebook was judged."""


def progress_on(console: Console, plans: Sequence[Plan]) -> Progress:
    """The progress display that suits the console."""
    return _Table(console, plans) if console.is_terminal else _Lines(console)


class _Lines:
    """A line when a notebook starts and one when it ends."""

    def __init__(self, console: Console) -> None:
        self._console, self._started = console, time.monotonic()
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        with self._lock:
            if plan.name not in self._seen:
                self._seen.add(plan.name)
                self._say(f"{plan.name}: started, {cells} cells, about {plan.budget_seconds:.0f} s")

    def on_end(self, verdict: Verdict) -> None:
        with self._lock:
            self._say(f"{verdict.name}: {verdict.outcome}, {verdict.compared} of {len(verdict.records)} checks compared")

    def _say(self, text: str) -> None:
        elapsed = time.monotonic() - self._started
        self._console.print(f"[{elapsed:6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)


class _Table:
    """A row a notebook: its cell and the time that it has taken, renewed twice a second and when a cell starts."""

    def __init__(self, console: Console, plans: Sequence[Plan]) -> None:
        self._rows = {plan.name: ("waiting", "", "") for plan in plans}
        self._started: dict[str, float] = {}
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> Progress:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def on_cell(self, plan: Plan, cell: int, cells: int) -> None:
        self._started.setdefault(plan.name, time.monotonic())
        self._rows[plan.name] = ("running", f"cell {cell} of {cells}", "")
        self._live.refresh()

    def on_end(self, verdict: Verdict) -> None:
        took = f"{verdict.run.seconds:.1f} s" if verdict.run else ""
        checked = f"{verdict.compared} of {len(verdict.records)} checks compared"
        self._rows[verdict.name] = (verdict.outcome, checked, took)

    def _render(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for name, (state, where, took) in dict(self._rows).items():
            since = self._started.get(name)
            elapsed = took or (f"{time.monotonic() - since:.1f} s" if since else "")
            style = {"passed": "green", "failed": "bold red", "missing": "bold red"}.get(state, "")
            table.add_row(name, f"[{style}]{state}[/]" if style else state, where, elapsed)
        return table
