"""The engine with which papermill executes a notebook of the suite: it goes on after a cell that raised, where that is useful.

Papermill's own engine ends at the first error. Which cells are still of use is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.execute import ERROR_MARKER_TAG, ERROR_MESSAGE_TEMPLATE

from xpulab.harness.lost import has_raised, mark_as_died

NAME = "xpulab"
"""The engine's name, for papermill."""

LeftOut = Callable[[NotebookNode], frozenset[int]]
"""Called with the notebook after a cell raised; returns the indices of the cells that are not to run any more."""

_OF_THE_CLIENT = ("kernel_manager_class", "shutdown_kernel", "on_notebook_start", "on_cell_start", "on_cell_executed")


class _Client(PapermillNotebookClient):
    """A client that asks `left_out` after each error. What it leaves out stays pending."""

    def __init__(self, manager: NotebookExecutionManager, left_out: LeftOut, **options: Any) -> None:
        # With errors allowed the kernel goes on with what is asked next; otherwise it answers that with "aborted" for a while.
        super().__init__(manager, allow_errors=True, **options)
        self._ask, self._raised = left_out, False
        self.on_cell_error = self._note

    def _note(self, **given: object) -> None:
        self._raised = True

    def papermill_execute_cells(self) -> None:
        left_out: frozenset[int] = frozenset()
        for index, cell in enumerate(self.nb.cells):
            if index in left_out:
                continue
            self._raised = False
            try:
                self.nb_man.cell_start(cell, index)
                self.execute_cell(cell, index)
            except DeadKernelError:
                mark_as_died(cell)
                self.nb_man.cell_exception(cell, cell_index=index)  # papermill itself says that it was completed
                raise
            else:
                if self._raised:
                    self.nb_man.cell_exception(cell, cell_index=index)
                    left_out = self._ask(self.nb)
            finally:
                self.nb_man.cell_complete(cell, cell_index=index)


class _Engine(NBClientEngine):
    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, *, left_out: LeftOut, start_timeout: int, **options: Any
    ) -> NotebookNode:
        own = {name: options[name] for name in _OF_THE_CLIENT if name in options}
        return _Client(nb_man, left_out, startup_timeout=start_timeout, kernel_name=kernel_name, **own).execute()


papermill_engines.register(NAME, _Engine)


def mark_the_first_error(notebook: NotebookNode) -> None:
    """Move papermill's red markers, which stand at the last error, to the first one."""
    markers = [cell for cell in notebook.cells if ERROR_MARKER_TAG in cell.metadata.get("tags", [])]
    if len(markers) == 2:
        others = [cell for cell in notebook.cells if not any(cell is marker for marker in markers)]
        place = next(index for index, cell in enumerate(others) if cell.cell_type == "code" and has_raised(cell))
        top, anchor = markers
        top.source = ERROR_MESSAGE_TEMPLATE % str(others[place].execution_count)
        notebook.cells = [top, *others[:place], anchor, *others[place:]]
