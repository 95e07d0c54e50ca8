"""result.json while a run is under way: what is known so far, replaced as sections and notebooks end."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

from nbformat import NotebookNode

from xpulab.harness import report
from xpulab.harness.execute import Target
from xpulab.harness.judge import Verdict, not_ended
from xpulab.harness.plan import Plan
from xpulab.harness.report.result import Result
from xpulab.records.record import Record, RunContext, record_in, run_context_in

_LEAST_SECONDS = 0.5
"""Between two files: cells can end many times a second."""
_MOST_OF_THE_TIME = 0.03
"""The part of the time that writing may take: the more there is to write, the longer the next file waits."""


class RunningResult:
    """Writes result.json with the outcome "running" while its block lasts, from a thread of its own."""

    def __init__(self, plans: Sequence[Plan], target: Target, folder: Path) -> None:
        self._plans, self._target, self._folder = plans, target, folder
        self._started = time.monotonic()
        self._verdicts: dict[str, Verdict] = {}
        self._records: dict[str, list[Record]] = {}
        self._contexts: dict[str, RunContext] = {}
        self._lock = threading.Lock()
        self._news, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_news, name="result.json", daemon=True)

    def on_cell_end(self, plan: Plan, cell: NotebookNode) -> None:
        """A cell has ended, with its outputs. Called from several threads."""
        metadata = [output.metadata for output in cell.get("outputs", []) if "metadata" in output]
        with self._lock:
            self._records.setdefault(plan.name, []).extend(filter(None, map(record_in, metadata)))
            if context := next(filter(None, map(run_context_in, metadata)), None):
                self._contexts[plan.name] = context
        self._news.set()

    def on_end(self, verdict: Verdict) -> None:
        """A notebook was judged."""
        with self._lock:
            self._verdicts[verdict.name] = verdict
        self._news.set()

    def __enter__(self) -> RunningResult:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._news.set()
        self._thread.join()

    def _write_news(self) -> None:
        while self._news.wait() and not self._over.is_set():
            self._news.clear()
            began = time.monotonic()
            self._write()
            self._over.wait(max(_LEAST_SECONDS, (time.monotonic() - began) / _MOST_OF_THE_TIME))

    def _write(self) -> None:
        with self._lock:
            verdicts = tuple(self._verdicts.get(plan.name) or self._so_far(plan) for plan in self._plans)
        seconds = time.monotonic() - self._started
        report.write_running(Result(self._target, verdicts, seconds, self._folder, running=True))

    def _so_far(self, plan: Plan) -> Verdict:
        return not_ended(plan, self._records.get(plan.name), self._contexts.get(plan.name))
