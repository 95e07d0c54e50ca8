"""Run notebooks, a fixed number at a time, each watched: one that never ends is interrupted, then killed.

papermill puts the parameters into a notebook, nbclient runs it, and its hooks tell of each cell. After a cell that raised, the
sections that do not need its section run all the same; a kernel that dies ends its notebook. All that a later reader needs is
written into the executed notebook: xpulab.harness.judge works from it alone.
"""

from __future__ import annotations

import copy
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.parameterize import parameterize_notebook

from xpulab import files, messages, warm
from xpulab.devices import starts_cold
from xpulab.harness import places
from xpulab.harness.lost import cells_left_out, has_raised
from xpulab.harness.plan import Plan
from xpulab.harness.sections import code_cells
from xpulab.harness.shares import Cards
from xpulab.harness.watchdog import Watchdog, kernel_manager
from xpulab.messages import N_
from xpulab.records.origin import date_of_now
from xpulab.records.record import METADATA_KEY, RED, record_in

INTERRUPTED = "interrupted"
"""Why a notebook was stopped that did nothing wrong: the run was to end."""

KILLED = N_("its run was killed")
"""The same of a notebook that had shown something red when its run ended without a word."""

LIMIT_IN_BUDGETS = 5.0
"""A notebook is stopped after this many times its budget: a slow machine gets there, a cell that never ends does not."""

_COLD_SECONDS = 60.0
"""How much longer a notebook may take whose kernel imports Paddle and PaddleNLP and starts a card by itself."""

_START_SECONDS = 120
"""How long a kernel may take to start."""

_ORDINARY_KERNEL = "python3"
_PAPERMILL = "papermill"


@dataclass(frozen=True)
class RunOptions:
    """What a run is asked to use.

    device: cpu, gpu, xpu or sim. level: one of sections.LEVELS. cards: how many a notebook may use.
    seed: of data, initial values and order; at least 0. limit_in_budgets: a notebook is stopped after this many times its
    budget. stands_for: the device that simulated cards stand for in a rehearsal; "" without one.
    is_whole: whether all notebooks were asked for, with all that the level has.
    """

    device: str
    level: str
    cards: int
    seed: int = 0
    stands_for: str = ""
    limit_in_budgets: float = LIMIT_IN_BUDGETS
    is_whole: bool = False


@dataclass(frozen=True)
class Run:
    """How one notebook was run; stored in the executed notebook's metadata.

    device, level, cards, seed: as in RunOptions. seconds: from the kernel's start to its end. budget_seconds: what was planned.
    stopped: why it did not run to its end (a dead kernel, a time limit, an interruption), else None; an exception in a cell
    is not named here, the cell's own output shows it. lacking: which place of the run could not be written when it had ended.
    date: when that was, as records.origin.date_of_now; "" from an earlier version.
    """

    device: str
    level: str
    cards: int
    seconds: float
    budget_seconds: float
    stopped: str | None
    seed: int = 0
    lacking: str = ""
    date: str = ""


OnStart = Callable[[Plan], None]
"""Called with a notebook whose kernel starts; from several threads."""

IsEnough = Callable[[NotebookNode], bool]
"""Called with each cell that has ended, with its outputs; True ends the notebook there."""


class Execution:
    """A run of several notebooks that can be stopped from another thread or a signal handler."""

    def __init__(
        self,
        options: RunOptions,
        folder: Path,
        environment: Mapping[str, str] | None = None,
        is_enough: IsEnough = lambda cell: False,
        on_start: OnStart = lambda plan: None,
    ) -> None:
        """environment: all variables of the kernels; without it this process's own."""
        self._options, self._folder = options, folder
        self._is_enough, self._on_start = is_enough, on_start
        self._environment = dict(os.environ if environment is None else environment)
        self._watchdogs: set[Watchdog] = set()
        self._stopping = threading.Event()

    def run(self, plans: Sequence[Plan], jobs: int) -> Iterator[tuple[Plan, Path]]:
        """Execute the plans, at most `jobs` at a time, the longest first; yields each with its executed notebook as it ends."""
        cards = Cards(self._options.device, self._options.cards, plans, jobs)
        try:
            for wave, at_once in cards.waves:
                with ThreadPoolExecutor(at_once) as pool:
                    plan_of = {pool.submit(self._run_one, plan, cards): plan for plan in wave}
                    try:
                        for ended in as_completed(plan_of):
                            if executed := ended.result():
                                yield plan_of[ended], executed
                    except BaseException:
                        self.stop()  # before the pool waits for what runs
                        raise
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop what runs, and start nothing more; run() then ends."""
        self._stopping.set()
        for watchdog in list(self._watchdogs):
            watchdog.stop(INTERRUPTED)

    def _run_one(self, plan: Plan, cards: Cards) -> Path | None:
        """Run one notebook on its share of the cards, and write it; None when it is not to start any more."""
        with cards.share(plan) as (number, variables):
            return self._run_on(plan, replace(self._options, cards=number), variables)

    def _run_on(self, plan: Plan, options: RunOptions, variables: Mapping[str, str]) -> Path | None:
        executed = self._folder / f"{plan.name}.ipynb"
        limit = plan.budget_seconds * options.limit_in_budgets + starts_cold(options.device) * _COLD_SECONDS
        watchdog = Watchdog(limit, executed.with_suffix(".log"))
        self._watchdogs.add(watchdog)
        if self._stopping.is_set():  # asked once stop() knows the watchdog, so that no kernel starts in between
            return None
        self._on_start(plan)
        started, notebook = time.monotonic(), _prepared(plan, options)

        def write(stopped: str | None, lacking: str = "") -> None:
            asked = (options.device, options.level, options.cards)
            seconds = round(time.monotonic() - started, 2)
            run = Run(*asked, seconds, plan.budget_seconds, stopped, options.seed, lacking, date_of_now())
            notebook.metadata.setdefault(METADATA_KEY, {})["run"] = asdict(run)
            files.replace_text(executed, nbformat.writes(notebook) + "\n")

        within = self._environment.get(warm.RUN_FOLDER)
        with tempfile.TemporaryDirectory(prefix="xpulab-", dir=within, ignore_cleanup_errors=True) as scratch:
            # the language of its figures; that of the person who runs it is another one
            own = {**self._environment, **variables, messages.VARIABLE: plan.chapter.language}
            manager = kernel_manager(watchdog, scratch, own)
            try:
                watchdog.run(lambda: self._execute(plan, notebook, manager, watchdog, write), plan.name)
            finally:
                watchdog.close()
                self._watchdogs.discard(watchdog)
            lacking = places.lacking(Path(scratch), places.SHARED_MEMORY)
        write(watchdog.reason, lacking)
        return executed

    def _execute(
        self,
        plan: Plan,
        notebook: NotebookNode,
        manager: type[AsyncKernelManager],
        watchdog: Watchdog,
        write: Callable[[str | None], None],
    ) -> None:
        """Execute the notebook; the watchdog keeps why it did not run to its end, unless a cell raised.

        write: called as soon as something is red, so that it is not lost when the run is killed.
        """
        numbers = code_cells(notebook)

        def on_cell_start(cell: NotebookNode, cell_index: int) -> None:
            watchdog.cell = numbers.get(cell_index, watchdog.cell)

        def on_cell_executed(cell: NotebookNode, cell_index: int, execute_reply: dict) -> None:
            if has_raised(cell) and watchdog.reason is None:
                client.left_out = cells_left_out(plan, notebook)
            records = (record_in(output.get("metadata", {})) for output in cell.outputs)
            if has_raised(cell) or any(record.outcome in RED for record in records if record):
                write(KILLED)
            if self._is_enough(cell):
                raise _EnoughSeen

        try:
            client = _Client(
                notebook,
                kernel_manager_class=manager,
                startup_timeout=_START_SECONDS,
                timeout=None,
                allow_errors=True,
                shutdown_kernel="immediate",
                on_cell_start=on_cell_start,
                on_cell_executed=on_cell_executed,
                stopped=lambda: watchdog.reason is not None,
            )
            client.execute()
        except _EnoughSeen:
            watchdog.ended(N_("enough was seen after cell {cell}", cell=watchdog.cell))
        except DeadKernelError:
            place, log = plan.chapter.place_of(watchdog.cell), watchdog.log.name
            watchdog.ended(N_("the kernel died in {place}; its last log lines are in {log}", place=place, log=log))
        except Exception as error:  # whatever one notebook does to nbclient must not lose the others' verdicts
            watchdog.ended(N_("it could not be run: {name}: {error}", name=type(error).__name__, error=error))


class _EnoughSeen(Exception):
    """Ends a notebook whose rest is not needed."""


class _Client(NotebookClient):
    """A client that leaves cells out. What is left out stays without output.

    left_out: the indices of cells that are not to run. stopped: whether the notebook is to end.
    """

    def __init__(self, notebook: NotebookNode, *, stopped: Callable[[], bool], **options: Any) -> None:
        super().__init__(notebook, **options)
        self.left_out: frozenset[int] = frozenset()
        self._stopped = stopped

    async def async_execute_cell(
        self, cell: NotebookNode, cell_index: int, execution_count: int | None = None, store_history: bool = True
    ) -> NotebookNode:
        """As nbclient's, of the cells that are to run."""
        if cell_index in self.left_out or self._stopped():
            return cell
        return await super().async_execute_cell(cell, cell_index, execution_count, store_history)

    def _cleanup_kernel(self) -> None:
        """As nbclient's, which it also calls at the exit for a kernel that did not start: of it nothing is left then."""
        if self.km is not None:
            super()._cleanup_kernel()


def _prepared(plan: Plan, options: RunOptions) -> NotebookNode:
    """The notebook with its parameters and without outputs: what they hold was seen in another run."""
    notebook = copy.deepcopy(plan.notebook)
    for cell in notebook.cells:
        cell.metadata.setdefault("tags", [])  # papermill looks for them
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.metadata.setdefault(_PAPERMILL, NotebookNode())
    parameters = {name: value for name, value in asdict(options).items() if name in plan.chapter.parameters}
    if not parameters:
        return notebook
    return parameterize_notebook(notebook, parameters, kernel_name=_ORDINARY_KERNEL, language="python")
