"""Run notebooks with papermill, several at a time, each watched: one that never ends is interrupted, then killed.

All that a later reader needs is written into the executed notebook: xpulab.harness.judge works from it alone.
"""

from __future__ import annotations

import copy
import os
import signal
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
from xpulab.records.record import METADATA_KEY
from xpulab.warm import kernels

LIMIT_IN_BUDGETS = 5.0
"""A notebook is stopped after this many times its budget: a slow machine gets there, a cell that never ends does not."""

_START_SECONDS = 120
_GRACE_SECONDS = 5.0
_COME_BACK_SECONDS = 30.0
"""A killed kernel is noticed by papermill within seconds; after this long it never will be."""
_SOCKET_PATH_BYTES = 90
"""Of a Unix socket's path 107 bytes are allowed; the kernel's manager appends to what it is given."""
_INJECTED = "injected-parameters"
_ORDINARY_KERNEL = "python3"


@dataclass(frozen=True)
class Target:
    """What a run is asked to use.

    device: cpu, gpu, xpu or sim. level: as in plan.LEVELS. cards: how many a notebook may use.
    """

    device: str
    level: str
    cards: int


@dataclass(frozen=True)
class Run:
    """How one notebook was run; stored in the executed notebook's metadata.

    device, level, cards: as in Target. seconds: from the kernel's start to its end. budget_seconds: what was planned.
    stopped: why it did not run to its end (a dead kernel, a limit, an interruption), else None; an exception in a cell is
    not named here, the cell's own output says it.
    """

    device: str
    level: str
    cards: int
    seconds: float
    budget_seconds: float
    stopped: str | None


Listener = Callable[[Plan, int, int], None]
"""Is told which notebook starts which code cell, counted from 1 as in its source, out of how many."""

Enough = Callable[[nbformat.NotebookNode], bool]
"""Is shown each cell that has ended, with its outputs; True ends the notebook there."""


class Execution:
    """A run of several notebooks that can be stopped from another thread or a signal handler."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        on_cell: Listener,
        environment: Mapping[str, str] | None = None,
        enough: Enough = lambda cell: False,
    ) -> None:
        """environment: all variables that the kernels find; without it this process's own."""
        self._target, self._folder, self._on_cell, self._enough = target, folder, on_cell, enough
        self._environment = dict(os.environ if environment is None else environment)
        self._watches: set[_Watch] = set()
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
                self._stop(started)

    def stop(self) -> None:
        """Stop what runs, and start nothing more; run() then ends."""
        self._stopping.set()
        for watch in list(self._watches):
            watch.stop("interrupted")

    def _stop(self, started: Iterable) -> None:
        for future in started:
            future.cancel()
        self.stop()

    def _run_one(self, plan: Plan) -> Path | None:
        executed = self._folder / f"{plan.name}.ipynb"
        watch = _Watch(plan.budget_seconds * LIMIT_IN_BUDGETS, executed.with_suffix(".log"))
        self._watches.add(watch)
        if self._stopping.is_set():  # asked once _stop knows the watch, so that no kernel slips in between
            return None
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="xpulab-", ignore_cleanup_errors=True) as scratch:
            try:
                stopped = self._papermill_or_given_up(plan, executed, _watched_by(watch, scratch, self._environment), watch)
            finally:
                watch.end()
                self._watches.discard(watch)
        seconds = round(time.monotonic() - started, 2)
        target = self._target
        run = Run(target.device, target.level, target.cards, seconds, plan.budget_seconds, stopped)
        _note(run, executed, plan.notebook)
        return executed

    def _papermill_or_given_up(
        self, plan: Plan, executed: Path, manager: type[AsyncKernelManager], watch: _Watch
    ) -> str | None:
        """As _papermill, which is left behind when it does not come back after its kernel was killed."""
        ended: list[str | None] = []

        def run() -> None:
            try:
                ended.append(self._papermill(plan, executed, manager, watch))
            finally:
                watch.over.set()

        watch.expect_kernel()
        threading.Thread(target=run, name=f"papermill {plan.name}", daemon=True).start()
        watch.over.wait()
        return ended[0] if ended else f"{watch.reason}; papermill did not come back from it"

    def _papermill(self, plan: Plan, executed: Path, manager: type[AsyncKernelManager], watch: _Watch) -> str | None:
        """Execute; returns why it was stopped, None when it ran to its end or to a cell that raised."""

        def on_cell_start(cell: nbformat.NotebookNode, cell_index: int) -> None:
            if cell.cell_type == "code" and _INJECTED not in cell.metadata.get("tags", []):
                watch.cell += 1
                self._on_cell(plan, watch.cell, cells)

        def on_cell_executed(cell: nbformat.NotebookNode, cell_index: int, execute_reply: dict) -> None:
            if self._enough(cell):
                raise _SeenEnough

        cells = len(code_cells(plan.notebook))
        parameters = {name: value for name, value in asdict(self._target).items() if name in plan.parameters}
        try:
            papermill.execute_notebook(
                _source_of(plan, executed),
                executed,
                parameters=parameters,
                language="python",
                progress_bar=False,
                start_timeout=_START_SECONDS,
                kernel_name=self._kernel_name(plan.notebook),
                kernel_manager_class=manager,
                shutdown_kernel="immediate",
                on_cell_start=on_cell_start,
                on_cell_executed=on_cell_executed,
            )
        except _SeenEnough:
            return watch.reason or f"enough was seen after cell {watch.cell}"
        except PapermillExecutionError:
            return watch.reason
        except DeadKernelError:
            return watch.reason or f"the kernel died in cell {watch.cell}; its last words are in {executed.stem}.log"
        except Exception as error:  # whatever one notebook does to papermill must not take the others' verdicts with it
            return watch.reason or f"it could not be run: {type(error).__name__}: {error}"
        return watch.reason

    def _kernel_name(self, notebook: nbformat.NotebookNode) -> str | None:
        """A warm kernel in place of the ordinary one when there is a fork server; None leaves it to the notebook."""
        spec = notebook.metadata.get("kernelspec", {})
        return kernels.NAME if warm.ADDRESS in self._environment and spec.get("name") == _ORDINARY_KERNEL else None


class _SeenEnough(Exception):
    """Ends a notebook whose rest nobody needs."""


class _Watch:
    """One kernel under watch: interrupted at its limit, killed a little later, and never left behind.

    What the kernel's process prints outside any cell (a crash in C++, for instance) goes to `log`.
    """

    def __init__(self, limit_seconds: float, log: Path) -> None:
        self.cell = 0
        self.log = log
        self.reason: str | None = None
        self.over = threading.Event()
        """Set when papermill has come back, or is not waited for any longer."""
        self._limit = limit_seconds
        self._group: int | None = None
        self._timers: list[threading.Timer] = []

    def expect_kernel(self) -> None:
        """From now on there must be a kernel within the time that one may take to start."""
        self._later(_START_SECONDS, lambda: self._group is None and self.stop("no kernel was started"))

    def kernel_started(self, pid: int) -> None:
        """The kernel leads a process group of its own; its limit counts from now."""
        self._group = pid
        if self.reason is not None:  # stopped while it was starting, when there was nothing to interrupt yet
            self._signal(signal.SIGKILL)
        self._later(self._limit, self._limit_reached)

    def stop(self, reason: str) -> None:
        """Interrupt the kernel, so that its cell shows where it stood; kill it when that does not help."""
        if self.reason is None:
            self.reason = reason
            self._signal(signal.SIGINT)
            self._later(_GRACE_SECONDS, lambda: self._signal(signal.SIGKILL))
            self._later(_GRACE_SECONDS + _COME_BACK_SECONDS, self.over.set)

    def end(self) -> None:
        """The notebook is done: whatever its kernel left running is killed."""
        for timer in self._timers:
            timer.cancel()
        self._signal(signal.SIGKILL)
        self._group = None  # from here on the number may belong to somebody else

    def _limit_reached(self) -> None:
        late = f"cell {self.cell} had not ended" if self.cell else "the kernel was not ready"
        self.stop(f"{late} after {self._limit:.0f} s")

    def _later(self, seconds: float, action: Callable[[], object]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _signal(self, number: signal.Signals) -> None:
        if self._group is not None:
            try:
                os.killpg(self._group, number)
            except ProcessLookupError:
                self._group = None


def _watched_by(watch: _Watch, scratch: str, environment: Mapping[str, str]) -> type[AsyncKernelManager]:
    """A kernel manager whose kernel is under watch and keeps its temporary files and its sockets in `scratch`.

    Ports are chosen before the kernel binds them: when somebody else takes the one for output in between, the kernel
    neither answers nor ends. A file of its own nobody takes.
    """
    sockets = {"transport": "ipc", "ip": f"{scratch}/kernel"} if len(os.fsencode(scratch)) <= _SOCKET_PATH_BYTES else {}

    class Watched(AsyncKernelManager):
        def __init__(self, **options: object) -> None:
            super().__init__(**{**sockets, **options})
            given = filter(None, environment.get("JUPYTER_PATH", "").split(os.pathsep))
            self.kernel_spec_manager.kernel_dirs = [
                *(f"{folder}/kernels" for folder in given),
                *self.kernel_spec_manager.kernel_dirs,
            ]

        async def start_kernel(self, **options: object) -> None:
            with watch.log.open("wb") as log:
                await super().start_kernel(**options, env={**environment, "TMPDIR": scratch}, stdout=log, stderr=log)
            watch.kernel_started(self.provisioner.pid)

    return Watched


def _source_of(plan: Plan, executed: Path) -> Path:
    """The file that papermill reads: the committed notebook, or an excerpt of it that is written beside the executed one."""
    if plan.is_whole:
        return plan.path
    source = executed.with_suffix(".source.ipynb")
    nbformat.write(plan.notebook, source)
    return source


def _note(run: Run, executed: Path, source: nbformat.NotebookNode) -> None:
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
    nbformat.write(notebook, executed)
