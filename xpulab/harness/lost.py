"""What of a notebook is lost since one of its cells raised. It follows from the executed cells alone.

A section is lost when one of its cells raised or cost the kernel, or when it needs a lost section. Its other cells do not run.
When a cell before the first section raised, everything is lost. A cell costs the kernel when the kernel dies in it, when it is
stopped at its time limit, or when it raised and the device computes no more; what is left then runs in a new kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from nbformat import NotebookNode

from xpulab.harness.chapter import code_cells
from xpulab.harness.plan import Plan
from xpulab.harness.sections import INJECTED, cells_by_number, closure
from xpulab.messages import N_
from xpulab.records.left_out import LeftOut
from xpulab.records.record import METADATA_KEY

DIED, LATE, DEVICE = "died", "late", "device"
"""How a cell cost its kernel: it died; the cell had not ended at its time limit; it raised, and the device computes no more."""

_MARK = "lost_kernel"
"""The key of a KernelLoss in a cell's metadata: a cell in which the kernel died leaves no output."""


@dataclass(frozen=True)
class KernelLoss:
    """That a cell cost its kernel.

    how: DIED, LATE or DEVICE. limit_seconds: of a cell that was LATE. went_on: whether what is left runs in a new kernel.
    """

    how: str
    limit_seconds: float = 0.0
    went_on: bool = False

    def format(self, label: str) -> str:
        """What happened, as a sentence. label: the cell's."""
        if self.how == DIED:
            return N_(f"the kernel died in {label}")
        if self.how == LATE:
            return _format_happened(label, self)
        return N_(f"the device computed no more after {label} raised")


@dataclass(frozen=True)
class Lost:
    """What cannot run any more.

    raised: what happened, as "cell 5 of section merge raised", for each cell but the last one, verdict(), in reading order.
    sections: by the name of each planned section that is lost what happened before. everything: whether verdict() is lost too.
    """

    raised: tuple[str, ...] = ()
    sections: dict[str, str] = field(default_factory=dict)
    everything: bool = False


def lost_in(plan: Plan, notebook: NotebookNode) -> Lost:
    """What is lost in an executed notebook, to its end or not; nothing when no cell raised."""
    positions = dict(enumerate(code_cells(plan.chapter.notebook), start=1))
    first = min((section.cells.start for section in plan.chapter.sections), default=len(plan.chapter.notebook.cells))
    raised: list[str] = []
    sections: dict[str, str] = {}
    everything = None
    for number, cell in cells_by_number(notebook).items():
        if number not in positions or number == max(positions) or not has_raised(cell):
            continue
        happened = _format_happened(label(plan, number), loss_in(cell))
        raised.append(happened)
        if positions[number] < first:
            everything = everything or happened
        for section in plan.chapter.sections:
            if positions[number] in section.cells:
                sections.setdefault(section.name, happened)
    if everything:
        return Lost(tuple(raised), dict.fromkeys((section.name for section in plan.sections), everything), True)
    waiting = True
    while waiting:  # a need may stand below
        found = {
            section.name: next(sections[need] for need in section.needs if need in sections)
            for section in plan.sections
            if section.name not in sections and any(need in sections for need in section.needs)
        }
        sections |= found
        waiting = bool(found)
    return Lost(tuple(raised), sections)


def left_out_of(plan: Plan, notebook: NotebookNode) -> LeftOut:
    """What verdict() and the reports must know of it: a reason for each check of the lost sections."""
    lost = lost_in(plan, notebook)
    by_check = ((check.name, lost.sections.get(plan.chapter.section_of(check).name)) for check in plan.checks)
    return LeftOut({name: N_(f"after {happened}") for name, happened in by_check if happened}, lost.raised)


def cells_left_out(plan: Plan, notebook: NotebookNode) -> frozenset[int]:
    """The indices of the cells of a notebook under way, among all of its cells, that are not to run."""
    lost = lost_in(plan, notebook)
    positions = dict(enumerate(code_cells(plan.chapter.notebook), start=1))
    gone = {index for section in plan.chapter.sections if section.name in lost.sections for index in section.cells}
    index_of = {id(cell): index for index, cell in enumerate(notebook.cells)}
    return frozenset(
        index_of[id(cell)]
        for number, cell in cells_by_number(notebook).items()
        if lost.everything or (positions[number] in gone and number != max(positions))
    )


def cells_needed_again(plan: Plan, notebook: NotebookNode, last: int) -> tuple[int, ...]:
    """The indices of the cells that a new kernel must run before it goes on below the cell `last`, among all cells.

    These are the cells before the first section, and those of the sections that are needed. None when nothing that is left can
    run, but verdict().
    """
    lost = lost_in(plan, notebook)
    if lost.everything:
        return ()
    positions = dict(enumerate(code_cells(plan.chapter.notebook), start=1))
    by_number = cells_by_number(notebook)
    index_of = {id(cell): index for index, cell in enumerate(notebook.cells)}
    indices = {positions[number]: index_of[id(cell)] for number, cell in by_number.items() if number != max(positions)}
    cells_of = {each.name: [indices[index] for index in each.cells if index in indices] for each in plan.sections}
    left = {name for name, cells in cells_of.items() if name not in lost.sections and any(index > last for index in cells)}
    if not left:
        return ()
    first = min(section.cells.start for section in plan.chapter.sections)
    head = [index for position, index in indices.items() if position < first]
    injected = [index for index, cell in enumerate(notebook.cells) if INJECTED in cell.metadata.get("tags", [])]
    needed = [index for section in closure(plan.chapter.sections, left) for index in cells_of[section.name] if index <= last]
    return tuple(sorted({*head, *injected, *needed}))


def label(plan: Plan, number: int) -> str:
    """What a code cell of the whole notebook is called in reports: "cell 5 of section merge", or "cell 2" before the first."""
    index = code_cells(plan.chapter.notebook)[number - 1 :][:1]
    names: Iterator[str] = (section.name for section in plan.chapter.sections if index and index[0] in section.cells)
    name = next(names, None)
    return N_(f"cell {number} of section {name}") if name else N_(f"cell {number}")


def losses(notebook: NotebookNode) -> Iterator[tuple[int, KernelLoss]]:
    """The cells that cost their kernel, each with its number in the whole notebook."""
    for number, cell in cells_by_number(notebook).items():
        if loss := loss_in(cell):
            yield number, loss


def loss_in(cell: NotebookNode) -> KernelLoss | None:
    """That the cell cost its kernel; None when it did not."""
    stored = cell.metadata.get(METADATA_KEY, {}).get(_MARK)
    return KernelLoss(**stored) if stored else None


def can_go_on_without(plan: Plan, number: int) -> bool:
    """Whether a section below a code cell of the whole notebook could run if this cell cost the kernel."""
    index = code_cells(plan.chapter.notebook)[number - 1]
    own = next((section for section in plan.chapter.sections if index in section.cells), None)
    below = [section for section in plan.sections if own and section.cells.start > own.cells.start]
    return any(own not in closure(plan.chapter.sections, {section.name}) for section in below)


def mark(cell: NotebookNode, loss: KernelLoss) -> None:
    """Keep in the cell that it cost its kernel."""
    cell.metadata.setdefault(METADATA_KEY, {})[_MARK] = asdict(loss)


def mark_as_gone_on(cell: NotebookNode) -> None:
    """What is left after the cell runs in a new kernel."""
    if loss := loss_in(cell):
        mark(cell, replace(loss, went_on=True))


def unmark(cell: NotebookNode) -> None:
    """The cell counts as not run."""
    cell.metadata.get(METADATA_KEY, {}).pop(_MARK, None)


def has_raised(cell: NotebookNode) -> bool:
    """Whether an executed cell ended with an exception, or cost its kernel."""
    return loss_in(cell) is not None or any(output.output_type == "error" for output in cell.get("outputs", []))


def _format_happened(label: str, loss: KernelLoss | None) -> str:
    """What the cell that the label names did, which raised or cost its kernel."""
    if loss is None or loss.how == DEVICE:
        return N_(f"{label} raised")
    return (
        N_(f"{label} ended its kernel") if loss.how == DIED else N_(f"{label} had not ended after {loss.limit_seconds:.0f} s")
    )
