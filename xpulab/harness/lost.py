"""What of a notebook is lost since one of its cells raised. It follows from the executed cells alone.

A section is lost when one of its cells raised, or when it needs a lost section. Its other cells do not run. When a cell before
the first section raised, everything is lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nbformat import NotebookNode

from xpulab.harness.chapter import code_cells
from xpulab.harness.plan import Plan
from xpulab.harness.sections import cells_by_number
from xpulab.messages import N_
from xpulab.records.left_out import LeftOut


@dataclass(frozen=True)
class LostSections:
    """What cannot run any more.

    raised: what happened, as "cell 5 of section merge raised", for each cell but the last one, verdict(), in reading order.
    sections: by the name of each planned section that is lost what happened before. everything: whether verdict() is lost too.
    """

    raised: tuple[str, ...] = ()
    sections: dict[str, str] = field(default_factory=dict)
    everything: bool = False


def lost_in(plan: Plan, notebook: NotebookNode) -> LostSections:
    """What is lost in an executed notebook, to its end or not; nothing when no cell raised."""
    positions = dict(enumerate(code_cells(plan.chapter.notebook), start=1))
    first = min((section.cells.start for section in plan.chapter.sections), default=len(plan.chapter.notebook.cells))
    raised: list[str] = []
    sections: dict[str, str] = {}
    everything = None
    for number, cell in cells_by_number(notebook).items():
        if number not in positions or number == max(positions) or not has_raised(cell):
            continue
        happened = N_("{plan} raised", plan=label(plan, number))
        raised.append(happened)
        if positions[number] < first:
            everything = everything or happened
        for section in plan.chapter.sections:
            if positions[number] in section.cells:
                sections.setdefault(section.name, happened)
    if everything:
        return LostSections(tuple(raised), dict.fromkeys((section.name for section in plan.sections), everything), True)
    waiting = True
    while waiting:  # a need may stand below
        found = {
            section.name: next(sections[need] for need in section.needs if need in sections)
            for section in plan.sections
            if section.name not in sections and any(need in sections for need in section.needs)
        }
        sections |= found
        waiting = bool(found)
    return LostSections(tuple(raised), sections)


def left_out_of(plan: Plan, notebook: NotebookNode) -> LeftOut:
    """What verdict() and the reports must know of it: a reason for each check of the lost sections."""
    lost = lost_in(plan, notebook)
    by_check = ((check.name, lost.sections.get(plan.chapter.section_of(check).name)) for check in plan.checks)
    return LeftOut({name: N_("after {happened}", happened=happened) for name, happened in by_check if happened}, lost.raised)


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


def label(plan: Plan, number: int) -> str:
    """What a code cell of the whole notebook is called in reports: "cell 5 of section merge", or "cell 2" before the first."""
    index = code_cells(plan.chapter.notebook)[number - 1 : number] if number else []
    name = next((section.name for section in plan.chapter.sections if index and index[0] in section.cells), None)
    return N_("cell {number} of section {name}", number=number, name=name) if name else N_("cell {number}", number=number)


def has_raised(cell: NotebookNode) -> bool:
    """Whether an executed cell ended with an exception."""
    return any(output.output_type == "error" for output in cell.get("outputs", []))
