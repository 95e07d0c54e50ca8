"""The engine with which papermill executes a notebook of the suite: it goes on after a cell that raised, where that is useful.

Papermill's own engine ends at the first error. When a cell cost its kernel (it died, the cell was stopped at its time limit, or
the device computes no more), what is left runs in a new kernel. The cells that this needs run there again, on copies: the
executed notebook keeps what they showed first, and gets in addition what is red in the copies. A cell that cost its kernel
never runs again, so that each new kernel gets further than the one before.

Which cells are still of use, and which must run again, is the course's to say (xpulab.harness.course).
"""

from __future__ import annotations

import asyncio
import copy
from queue import Empty
from typing import Any

from jupyter_core.utils import ensure_async, run_sync
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import NBClientEngine, NotebookExecutionManager, papermill_engines
from papermill.execute import ERROR_MARKER_TAG, ERROR_MESSAGE_TEMPLATE

from xpulab.harness.course import Course
from xpulab.harness.lost import DEVICE, DIED, LATE, KernelLoss, has_raised, mark, mark_as_gone_on
from xpulab.records.record import RED, record_in

NAME = "xpulab"
"""The engine's name, for papermill."""

ANSWER_SECONDS = 30.0
"""How long the device may take for the sum that shows that it still computes."""

_COMPUTES = "__import__('xpulab.chapters.shared.device', fromlist=['computes']).computes()"
"""An expression, so that nothing is added to the names of the notebook."""

_OF_THE_CLIENT = ("kernel_manager_class", "shutdown_kernel", "on_notebook_start", "on_cell_start", "on_cell_executed")


class NoNewKernel(Exception):
    """A kernel was lost, and none could be started in its place."""


class _Client(PapermillNotebookClient):
    """A client that asks `course` after each error. What is left out stays pending."""

    nb: NotebookNode

    def __init__(self, manager: NotebookExecutionManager, course: Course, **options: Any) -> None:
        # With errors allowed the kernel goes on with what is asked next; otherwise it answers that with "aborted" for a while.
        super().__init__(manager, allow_errors=True, **options)
        self._course, self._raised = course, False
        self.on_cell_error = self._note

    def _note(self, **given: object) -> None:
        self._raised = True

    def papermill_execute_cells(self) -> None:
        left_out: frozenset[int] = frozenset()
        for index, cell in enumerate(self.nb.cells):
            if index in left_out or cell.cell_type != "code":  # for a text, too, papermill writes the notebook twice
                continue
            loss = None
            try:
                self.nb_man.cell_start(cell, index)
                loss = self._run(cell, index, last=index)
                if loss or self._raised:
                    self.nb_man.cell_exception(cell, cell_index=index)  # papermill itself says of a dead kernel: completed
            finally:
                self.nb_man.cell_complete(cell, cell_index=index)
            if loss:
                left_out = self._go_on_after(index)
            elif self._raised:
                left_out = self._course.left_out(self.nb)

    def _run(self, cell: NotebookNode, index: int, last: int) -> KernelLoss | None:
        """Run one cell; returns how it cost the kernel, and marks it so, or None. last: the last cell that has run or runs."""
        self._raised, died = False, False
        try:
            self.execute_cell(cell, index)
        except DeadKernelError:
            died = True
        limit = self._course.limit_of_late_cell()
        if limit is not None:
            loss = KernelLoss(LATE, limit)
        elif died:
            loss = KernelLoss(DIED)
        elif self._raised and self._course.needed_again(self.nb, last) and not self._computes():
            loss = KernelLoss(DEVICE)
        else:
            return None
        mark(cell, loss)
        self._course.kernel_lost(cell, loss)
        return loss

    def _go_on_after(self, last: int) -> frozenset[int]:
        """Start a new kernel, and run in it what the cells below `last` need; returns what is left out of these.

        Raises DeadKernelError when nothing is left that can run.
        """
        cell = self.nb.cells[last]
        while again := self._course.needed_again(self.nb, last):
            self._course.before_new_kernel(self.nb)
            self._start_in_its_place()
            mark_as_gone_on(cell)
            lost_again = self._run_again(again, last)
            if lost_again is None:
                return self._course.left_out(self.nb)
            cell = lost_again
        raise DeadKernelError("Kernel died")

    def _run_again(self, indices: tuple[int, ...], last: int) -> NotebookNode | None:
        """Run copies of these cells; returns the cell that cost the kernel, or None."""
        shown: NotebookNode = self.nb
        left_out: frozenset[int] = frozenset()
        for index in indices:
            if index in left_out:
                continue
            again = copy.deepcopy(shown.cells[index])
            again.outputs = []
            # The client puts a cell that has run into its notebook; the one that papermill writes is another object.
            self.nb = NotebookNode({**shown, "cells": [*shown.cells[:index], again, *shown.cells[index + 1 :]]})
            try:
                loss = self._run(again, index, last)
            finally:
                self.nb = shown
            if loss or self._raised:
                self.nb_man.cell_exception(shown.cells[index], cell_index=index)
            _add_what_is_red(shown.cells[index], again)
            if loss:
                mark(shown.cells[index], loss)
                return shown.cells[index]
            if self._raised:
                left_out = self._course.left_out(shown)
        self._display_id_map.clear()  # where displays are in the copies
        return None

    def _start_in_its_place(self) -> None:
        """A new kernel, with a manager and a client of its own. Raises NoNewKernel."""
        self._end_kernel()
        self.create_kernel_manager()
        try:
            self.start_new_kernel()
            self.start_new_kernel_client()
        except Exception as error:
            if self.km is None:  # its owner ends it at the end
                self.create_kernel_manager()
            raise NoNewKernel(f"{type(error).__name__}: {error}") from error

    async def _async_end_kernel(self) -> None:
        """Kill the kernel, if it still runs, and reap it."""
        await ensure_async(self.km.shutdown_kernel(now=True))
        await self._async_cleanup_kernel()

    _end_kernel = run_sync(_async_end_kernel)

    async def _async_computes(self) -> bool:
        """Whether the device of the notebook still computes: the kernel is asked silently."""
        request = self.kc.execute("", silent=True, user_expressions={"computes": _COMPUTES}, stop_on_error=False)
        loop = asyncio.get_running_loop()
        end = loop.time() + ANSWER_SECONDS
        while loop.time() < end and await ensure_async(self.kc.is_alive()):
            try:
                reply = await ensure_async(self.kc.shell_channel.get_msg(timeout=1))
            except Empty:
                continue
            if reply["parent_header"].get("msg_id") == request:
                answer = reply["content"].get("user_expressions", {}).get("computes", {})
                return answer.get("data", {}).get("text/plain") == str(True)
        return False

    _computes = run_sync(_async_computes)


class _Engine(NBClientEngine):
    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, *, course: Course, start_timeout: int, **options: Any
    ) -> NotebookNode:
        own = {name: options[name] for name in _OF_THE_CLIENT if name in options}
        return _Client(nb_man, course, startup_timeout=start_timeout, kernel_name=kernel_name, **own).execute()


papermill_engines.register(NAME, _Engine)


def mark_the_first_error(notebook: NotebookNode) -> None:
    """Move papermill's red markers, which stand at the last error, to the first one."""
    markers = [cell for cell in notebook.cells if ERROR_MARKER_TAG in cell.metadata.get("tags", [])]
    if len(markers) == 2:
        others = [cell for cell in notebook.cells if not any(cell is marker for marker in markers)]
        place = next(index for index, cell in enumerate(others) if cell.cell_type == "code" and has_raised(cell))
        top, anchor = markers
        top.source = ERROR_MESSAGE_TEMPLATE % str(others[place].execution_count or " ")
        notebook.cells = [top, *others[:place], anchor, *others[place:]]


def _add_what_is_red(shown: NotebookNode, again: NotebookNode) -> None:
    """What a cell showed first stays; a red check and an error of its second run are added."""
    for output in again.outputs:
        record = record_in(output.get("metadata", {}))
        if output.output_type == "error" or (record and record.outcome in RED):
            shown.outputs.append(output)
