"""One notebook under way: which of its cells still run after an error, and what each of its kernels is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode

from xpulab.harness.lost import DIED, KernelLoss, can_go_on_without, cells_left_out, cells_needed_again, left_out_of
from xpulab.harness.plan import Plan
from xpulab.harness.watchdog import Watchdog
from xpulab.harness.written import replace_text
from xpulab.messages import N_
from xpulab.records import earlier, left_out
from xpulab.records.earlier import Earlier
from xpulab.records.record import record_in


class Course:
    """What the engine (xpulab.harness.engine) asks and tells about the notebook that it executes."""

    def __init__(
        self,
        plan: Plan,
        watchdog: Watchdog,
        variables: dict[str, str],
        scratch: Path,
        on_loss: Callable[[NotebookNode], None],
    ) -> None:
        """variables: of the notebook's kernels; what the next one is given is added. scratch: a folder.

        on_loss: called with a cell that cost its kernel, and those of its outputs that nobody was told yet.
        """
        self._plan, self._watchdog, self._on_loss = plan, watchdog, on_loss
        self._variables = variables
        self._left_out, self._earlier = scratch / "left_out.json", scratch / "earlier.json"
        self._before = Earlier()
        if of_resumed_run := variables.get(earlier.VARIABLE):
            self._before = Earlier.from_json(Path(of_resumed_run).read_text(encoding="utf-8"))
        self._last = KernelLoss(DIED)
        variables[left_out.VARIABLE] = str(self._left_out)

    def left_out(self, notebook: NotebookNode) -> frozenset[int]:
        """The indices of the cells that are not to run any more; the kernel finds in its file why."""
        if self._watchdog.reason is not None:  # it was stopped, and raised for that
            return frozenset(range(len(notebook.cells)))
        replace_text(self._left_out, left_out_of(self._plan, notebook).to_json())
        return cells_left_out(self._plan, notebook)

    def needed_again(self, notebook: NotebookNode, last: int) -> tuple[int, ...]:
        """The indices of the cells that a new kernel must run before it goes on below the cell `last`."""
        return () if self._watchdog.reason is not None else cells_needed_again(self._plan, notebook, last)

    def cell_started(self, number: int) -> None:
        """A code cell starts, counted as in the whole notebook. Where nothing can go on without it, it has all of the time."""
        self._watchdog.cell_started(number, is_limited=can_go_on_without(self._plan, number))

    def limit_of_late_cell(self) -> float | None:
        """The time limit at which the cell was stopped that has just ended, else None."""
        return self._watchdog.cell_ended()

    def kernel_lost(self, cell: NotebookNode, loss: KernelLoss) -> None:
        """Tell of the loss; the outputs were told before, unless the kernel died, which ends a cell without a reply."""
        self._last = loss
        if self._watchdog.reason is None:
            self._on_loss(cell if loss.how == DIED else NotebookNode({**cell, "outputs": []}))

    def before_new_kernel(self, notebook: NotebookNode) -> None:
        """Give the next kernel all records up to now."""
        outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
        records = tuple(filter(None, (record_in(output.get("metadata", {})) for output in outputs)))
        everything = Earlier((*self._before.records, *records), self._before.left_out)
        replace_text(self._earlier, everything.to_json())
        self._variables[earlier.VARIABLE] = str(self._earlier)
        self._watchdog.kernel_lost()

    def why_it_ended(self) -> str:
        """Why the notebook ended with its kernel."""
        number = self._watchdog.cell
        happened = self._last.format(N_(f"cell {number}"))
        log = N_(f"its last log lines are in {self._watchdog.log.name}")
        return f"{happened}; {log}" if self._last.how == DIED else happened
