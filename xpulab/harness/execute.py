"""Run notebooks with papermill, several at a time, each watched: one that never ends is interrupted, then killed.

All that a later reader needs is written into the executed notebook: xpulab.harness.judge works from it alone.
"""

from __future__ import annotations

import copy
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
import papermill
from jupyter_client import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from xpulab import messages, warm
from xpulab.harness import engine
from xpulab.harness.admission import Admission, AtATime, ByLoad, Running, last_timed_cell
from xpulab.harness.chapter import code_cells
from xpulab.harness.course import Course
from xpulab.harness.machine import Machine
from xpulab.harness.measured_times import MeasuredTimes
from xpulab.harness.plan import Plan
from xpulab.harness.sections import INJECTED, number_of
from xpulab.harness.watchdog import START_SECONDS, Watchdog, kernel_manager
from xpulab.harness.written import replace_notebook, replace_what_papermill_writes
from xpulab.messages import N_
from xpulab.records import processor
from xpulab.records.record import METADATA_KEY
from xpulab.warm import kernels

INTERRUPTED = "interrupted"
"""Why a notebook was stopped that did nothing wrong: the run was to end."""

LIMIT_IN_BUDGETS = 5.0
"""A notebook is stopped after this many times its budget: a slow machine gets there, a cell that never ends does not."""

LEFT_IN_BUDGETS = 1.0
"""A cell is stopped so much earlier: what is left after one that never ends has as long as the whole notebook should take."""

_ORDINARY_KERNEL = "python3"

_POLL_SECONDS = 0.2
"""How often it is asked whether a notebook that waits may start."""

replace_what_papermill_writes()


@dataclass(frozen=True)
class Target:
    """What a run is asked to use.

    device: cpu, gpu, xpu or sim. level: one of sections.LEVELS. cards: how many a notebook may use.
    seed: of data, initial values and order; at least 0. limit_in_budgets: a notebook is stopped after this many times its
    budget.
    """

    device: str
    level: str
    cards: int
    seed: int = 0
    limit_in_budgets: float = LIMIT_IN_BUDGETS


@dataclass(frozen=True)
class Run:
    """How one notebook was run; stored in the executed notebook's metadata.

    device, level, cards, seed: as in Target. seconds: from the kernel's start to its end. budget_seconds: what was planned.
    stopped: why it did not run to its end (a dead kernel, a time limit, an interruption), else None; an exception in a cell
    is not named here, the cell's own output shows it. resumed: how many times it was interrupted and resumed.
    """

    device: str
    level: str
    cards: int
    seconds: float
    budget_seconds: float
    stopped: str | None
    seed: int = 0
    resumed: int = 0


OnCell = Callable[[Plan, int, int], None]
"""Called with the notebook, the code cell that it starts, counted from 1 as in its source, and how many there are."""

OnCellEnd = Callable[[Plan, nbformat.NotebookNode], None]
"""Called with the notebook and each of its cells that has ended, with its outputs."""

IsEnough = Callable[[nbformat.NotebookNode], bool]
"""Called with each cell that has ended, with its outputs; True ends the notebook there."""


class Execution:
    """A run of several notebooks that can be stopped from another thread or a signal handler."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        on_cell: OnCell,
        environment: Mapping[str, str] | None = None,
        is_enough: IsEnough = lambda cell: False,
        on_cell_end: OnCellEnd = lambda plan, cell: None,
        variables_of: Callable[[Plan], Mapping[str, str]] = lambda plan: {},
    ) -> None:
        """environment: all variables of the kernels; without it this process's own. variables_of: more of one notebook's."""
        self._on_cell_end, self._variables_of = on_cell_end, variables_of
        self._target, self._folder, self._on_cell, self._is_enough = target, folder, on_cell, is_enough
        self._environment = dict(os.environ if environment is None else environment)
        self._times = MeasuredTimes(target.device, target.level)
        self._watchdogs: set[Watchdog] = set()
        self._at: dict[str, int] = {}  # the cell that runs, by notebook
        self._timed: dict[str, int] = {}  # the last cell with a check that judges times, by notebook
        self._peaks: dict[str, int] = {}  # bytes of the kernel, by notebook
        self._stopping = threading.Event()

    def run(self, plans: Sequence[Plan], jobs: int | None = None) -> Iterator[tuple[Plan, Path]]:
        """Execute the plans; yields each with its executed notebook as it ends.

        jobs: so many at a time, the longest first. None: as many as the machine has room for, in the order of `in_order`.
        """
        admission: Admission = ByLoad(Machine(time.monotonic)) if jobs is None else AtATime(jobs)
        waiting = in_order(plans, self._times) if jobs is None else longest_first(plans, self._times)
        self._timed = {plan.name: last_timed_cell(plan) for plan in plans}
        running: dict[Future[Path | None], tuple[Plan, float]] = {}
        ended: list[tuple[Plan, Path | None]] = []
        with ThreadPoolExecutor(max(1, len(plans))) as pool:
            try:
                while waiting or running or ended:
                    while (plan := self._next(admission, waiting, list(running.values()))) is not None:
                        waiting.remove(plan)
                        running[pool.submit(self._run_one, plan)] = (plan, time.monotonic())
                        admission.changed()
                    yield from ((plan, executed) for plan, executed in ended if executed is not None)
                    done, _ = wait(running, _POLL_SECONDS if waiting else None, FIRST_COMPLETED)
                    ended = [(running.pop(future)[0], future.result()) for future in done]
                    if ended:
                        admission.changed()
            finally:
                self.stop()

    def _next(self, admission: Admission, waiting: list[Plan], running: Sequence[tuple[Plan, float]]) -> Plan | None:
        """The first of those that wait and may start now; None when there is none."""
        if self._stopping.is_set():
            waiting.clear()
        now = time.monotonic()
        candidates = [self._running(plan, now) for plan in waiting]
        place = admission.next(now, [self._running(*each) for each in running], candidates) if candidates else None
        return None if place is None else waiting[place]

    def _running(self, plan: Plan, began: float) -> Running:
        timed = 0 < self._timed[plan.name] >= self._at.get(plan.name, 0)
        return Running(began, self._times.peak_bytes(plan), timed)

    def keep_time(self, plan: Plan, seconds: float) -> None:
        """The notebook ran to its end and was right: its time counts for the order of the next runs."""
        self._times.note(plan, seconds, self._peaks.get(plan.name, 0))

    def stop(self) -> None:
        """Stop what runs, and start nothing more; run() then ends."""
        self._stopping.set()
        for watchdog in list(self._watchdogs):
            watchdog.stop(INTERRUPTED)

    def _run_one(self, plan: Plan) -> Path | None:
        executed = self._folder / f"{plan.name}.ipynb"
        budget, limit = plan.budget_seconds, self._target.limit_in_budgets
        watchdog = Watchdog(budget * limit, executed.with_suffix(".log"), budget * (limit - LEFT_IN_BUDGETS))
        self._watchdogs.add(watchdog)
        if self._stopping.is_set():  # asked once stop() knows the watchdog, so that no kernel starts in between
            return None
        started = time.monotonic()
        within = self._environment.get(warm.RUN_FOLDER)
        with tempfile.TemporaryDirectory(prefix="xpulab-", dir=within, ignore_cleanup_errors=True) as scratch:
            own = {messages.VARIABLE: plan.chapter.language}  # of its figures; that of the person who runs it is another one
            variables = {**self._environment, **self._variables_of(plan), **own}
            course = Course(plan, watchdog, variables, Path(scratch), lambda cell: self._ended(plan, cell))
            manager = kernel_manager(watchdog, scratch, variables)
            try:
                watchdog.run(lambda: self._execute(plan, executed, manager, watchdog, course), f"papermill {plan.name}")
            finally:
                watchdog.close()
                self._watchdogs.discard(watchdog)
        seconds = round(time.monotonic() - started, 2)
        target = self._target
        run = Run(target.device, target.level, target.cards, seconds, plan.budget_seconds, watchdog.reason, target.seed)
        _write_run(run, executed, plan.notebook)
        return executed

    def _execute(
        self, plan: Plan, executed: Path, manager: type[AsyncKernelManager], watchdog: Watchdog, course: Course
    ) -> None:
        """Execute with papermill; the watchdog keeps why it did not run to its end, unless a cell raised.

        After a cell raised, or cost its kernel, the sections that do not need its section run all the same.
        """

        def on_notebook_start(notebook: nbformat.NotebookNode) -> None:
            code = (index for index in code_cells(notebook) if INJECTED not in notebook.cells[index].metadata.get("tags", []))
            positions.update({index: position for position, index in enumerate(code, start=1)})

        def on_cell_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
            if position := positions.get(cell_index):
                course.cell_started(number_of(cell, position))
                self._at[plan.name] = position
                self._on_cell(plan, position, cells)

        def on_cell_executed(cell: nbformat.NotebookNode, cell_index: int, execute_reply: dict) -> None:
            if used := processor.from_metadata((execute_reply or {}).get("metadata", {})):
                processor.add_to_cell(cell.metadata, used)
            self._peaks[plan.name] = max(self._peaks.get(plan.name, 0), watchdog.peak_bytes())
            self._ended(plan, cell)

        cells = len(code_cells(plan.notebook))
        positions: dict[int, int] = {}
        parameters = {name: value for name, value in asdict(self._target).items() if name in plan.parameters}
        try:
            papermill.execute_notebook(
                _source_of(plan, executed),
                executed,
                parameters=parameters,
                engine_name=engine.NAME,
                language="python",
                progress_bar=False,
                start_timeout=START_SECONDS,
                kernel_name=self._kernel_name(plan.notebook),
                kernel_manager_class=manager,
                shutdown_kernel="immediate",
                course=course,
                on_notebook_start=on_notebook_start,
                on_cell_start=on_cell_start,
                on_cell_executed=on_cell_executed,
            )
        except _EnoughSeen:
            watchdog.ended(N_(f"enough was seen after cell {watchdog.cell}"))
        except PapermillExecutionError:
            return  # the cells' own outputs show it
        except DeadKernelError:
            watchdog.ended(course.why_it_ended())
        except engine.NoNewKernel as error:
            watchdog.ended(N_(f"{course.why_it_ended()}; no new kernel could be started: {error}"))
        except Exception as error:  # whatever one notebook does to papermill must not lose the others' verdicts
            watchdog.ended(N_(f"it could not be run: {type(error).__name__}: {error}"))

    def _ended(self, plan: Plan, cell: nbformat.NotebookNode) -> None:
        """A cell has ended, by itself or with its kernel. Raises _EnoughSeen when the rest is not needed."""
        self._on_cell_end(plan, cell)
        if self._is_enough(cell):
            raise _EnoughSeen

    def _kernel_name(self, notebook: nbformat.NotebookNode) -> str | None:
        """A warm kernel in place of the ordinary one when there is a fork server; None leaves it to the notebook."""
        spec = notebook.metadata.get("kernelspec", {})
        return kernels.NAME if warm.ADDRESS in self._environment and spec.get("name") == _ORDINARY_KERNEL else None


def longest_first(plans: Sequence[Plan], times: MeasuredTimes) -> list[Plan]:
    """Those that take longest first, so that none of them is left when all others have ended."""
    return sorted(plans, key=times.seconds, reverse=True)


def in_order(plans: Sequence[Plan], times: MeasuredTimes) -> list[Plan]:
    """The order when several run at once.

    Notebooks that judge times come first, while few others run. The shortest of all is the first one, for an early answer;
    otherwise the longest come first.
    """
    first = longest_first([plan for plan in plans if last_timed_cell(plan)], times)
    others = longest_first([plan for plan in plans if not last_timed_cell(plan)], times)
    shortest = min(plans, key=times.seconds, default=None)
    return [*filter(None, [shortest]), *(plan for plan in (*first, *others) if plan is not shortest)]


class _EnoughSeen(Exception):
    """Ends a notebook whose rest is not needed."""


def _source_of(plan: Plan, executed: Path) -> Path:
    """The file that papermill reads: the committed notebook, or an excerpt of it that is written beside the executed one."""
    if plan.is_whole:
        return plan.path
    source = executed.with_suffix(".source.ipynb")
    nbformat.write(plan.notebook, source)
    return source


def _write_run(run: Run, executed: Path, source: nbformat.NotebookNode) -> None:
    """Write how it was run into the executed notebook, or into a copy of the source when nothing was executed.

    The copy has no outputs: what they hold was seen in another run.
    """
    if executed.exists():
        notebook = nbformat.read(executed, as_version=4)
        engine.mark_the_first_error(notebook)
    else:
        notebook = copy.deepcopy(source)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
    notebook.metadata.setdefault(METADATA_KEY, {})["run"] = asdict(run)
    replace_notebook(executed, notebook)
