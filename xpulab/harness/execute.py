"""Run notebooks with papermill, several at a time, each watched: one that never ends is interrupted, then killed.

All that a later reader needs is written into the executed notebook: xpulab.harness.judge works from it alone.
"""

from __future__ import annotations

import copy
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import nbformat
import papermill
from jupyter_client import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError

from xpulab import warm
from xpulab.harness.chapter import code_cells
from xpulab.harness.plan import Plan
from xpulab.harness.watchdog import START_SECONDS, Watchdog, kernel_manager
from xpulab.harness.written import replace_notebook, replace_what_papermill_writes
from xpulab.records.record import METADATA_KEY
from xpulab.warm import kernels

INTERRUPTED = "interrupted"
"""Why a notebook was stopped that did nothing wrong: the run was to end."""

LIMIT_IN_BUDGETS = 5.0
"""A notebook is stopped after this many times its budget: a slow machine gets there, a cell that never ends does not."""

INJECTED = "injected-parameters"
"""The tag of the cell that papermill adds."""

_ORDINARY_KERNEL = "python3"

replace_what_papermill_writes()


@dataclass(frozen=True)
class Target:
    """What a run is asked to use.

    device: cpu, gpu, xpu or sim. level: one of sections.LEVELS. cards: how many a notebook may use.
    seed: of data, initial values and order; at least 0.
    """

    device: str
    level: str
    cards: int
    seed: int = 0


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
        self._watchdogs: set[Watchdog] = set()
        self._stopping = threading.Event()

    def run(self, plans: Sequence[Plan], jobs: int) -> Iterable[tuple[Plan, Path]]:
        """Execute the plans, the longest first, `jobs` at a time; yields each with its executed notebook as it ends."""
        longest_first = sorted(plans, key=lambda plan: plan.expected_seconds, reverse=True)
        with ThreadPoolExecutor(jobs) as pool:
            started = {pool.submit(self._run_one, plan): plan for plan in longest_first}
            try:
                for done in as_completed(started):
                    if (executed := done.result()) is not None:
                        yield started[done], executed
            finally:
                for future in started:
                    future.cancel()
                self.stop()

    def stop(self) -> None:
        """Stop what runs, and start nothing more; run() then ends."""
        self._stopping.set()
        for watchdog in list(self._watchdogs):
            watchdog.stop(INTERRUPTED)

    def _run_one(self, plan: Plan) -> Path | None:
        executed = self._folder / f"{plan.name}.ipynb"
        watchdog = Watchdog(plan.budget_seconds * LIMIT_IN_BUDGETS, executed.with_suffix(".log"))
        self._watchdogs.add(watchdog)
        if self._stopping.is_set():  # asked once stop() knows the watchdog, so that no kernel starts in between
            return None
        started = time.monotonic()
        within = self._environment.get(warm.RUN_FOLDER)
        with tempfile.TemporaryDirectory(prefix="xpulab-", dir=within, ignore_cleanup_errors=True) as scratch:
            manager = kernel_manager(watchdog, scratch, {**self._environment, **self._variables_of(plan)})
            try:
                watchdog.run(lambda: self._execute(plan, executed, manager, watchdog), f"papermill {plan.name}")
            finally:
                watchdog.close()
                self._watchdogs.discard(watchdog)
        seconds = round(time.monotonic() - started, 2)
        target = self._target
        run = Run(target.device, target.level, target.cards, seconds, plan.budget_seconds, watchdog.reason, target.seed)
        _write_run(run, executed, plan.notebook)
        return executed

    def _execute(self, plan: Plan, executed: Path, manager: type[AsyncKernelManager], watchdog: Watchdog) -> None:
        """Execute with papermill; the watchdog keeps why it did not run to its end, unless a cell raised."""

        def on_cell_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
            if cell.cell_type == "code" and INJECTED not in cell.metadata.get("tags", []):
                watchdog.cell += 1
                self._on_cell(plan, watchdog.cell, cells)

        def on_cell_executed(cell: nbformat.NotebookNode, cell_index: int, execute_reply: dict) -> None:
            self._on_cell_end(plan, cell)
            if self._is_enough(cell):
                raise _EnoughSeen

        cells = len(code_cells(plan.notebook))
        parameters = {name: value for name, value in asdict(self._target).items() if name in plan.parameters}
        try:
            papermill.execute_notebook(
                _source_of(plan, executed),
                executed,
                parameters=parameters,
                language="python",
                progress_bar=False,
                start_timeout=START_SECONDS,
                kernel_name=self._kernel_name(plan.notebook),
                kernel_manager_class=manager,
                shutdown_kernel="immediate",
                on_cell_start=on_cell_start,
                on_cell_executed=on_cell_executed,
            )
        except _EnoughSeen:
            watchdog.ended(f"enough was seen after cell {watchdog.cell}")
        except PapermillExecutionError:
            return  # the cell's own output shows it
        except DeadKernelError:
            log = executed.with_suffix(".log").name
            watchdog.ended(f"the kernel died in cell {watchdog.cell}; its last log lines are in {log}")
        except Exception as error:  # whatever one notebook does to papermill must not lose the others' verdicts
            watchdog.ended(f"it could not be run: {type(error).__name__}: {error}")

    def _kernel_name(self, notebook: nbformat.NotebookNode) -> str | None:
        """A warm kernel in place of the ordinary one when there is a fork server; None leaves it to the notebook."""
        spec = notebook.metadata.get("kernelspec", {})
        return kernels.NAME if warm.ADDRESS in self._environment and spec.get("name") == _ORDINARY_KERNEL else None


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
    else:
        notebook = copy.deepcopy(source)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
    notebook.metadata.setdefault(METADATA_KEY, {})["run"] = asdict(run)
    replace_notebook(executed, notebook)
