"""What of a notebook is lost since one of its cells raised. It follows from the executed cells alone.

A section is lost when one of its cells raised, or when it needs a lost section. Its other cells do not run, nor does verdict()
after any cell that raised. When a cell before the first section raised, everything is lost.
"""

from __future__ import annotations

from nbformat import NotebookNode

from xpulab.harness.plan import Plan
from xpulab.harness.sections import code_cells
from xpulab.messages import N_


def lost_sections(plan: Plan, notebook: NotebookNode) -> dict[str, str]:
    """By the name of each section that cannot run any more what happened; none when no cell but the last one raised.

    notebook: executed, to its end or not.
    """
    lost: dict[str, str] = {}
    for index, number in code_cells(notebook).items():
        if number < plan.chapter.last_cell and has_raised(notebook.cells[index]):
            section = plan.chapter.section_at(number)
            for each in [section] if section else plan.sections:
                lost.setdefault(each.name, N_("{place} raised", place=plan.chapter.place_of(number)))
    waiting = [section for section in plan.sections if section.name not in lost]
    while found := {section.name: lost[need] for section in waiting for need in section.needs if need in lost}:
        lost |= found
        waiting = [section for section in waiting if section.name not in found]
    return lost


def missing_checks(plan: Plan, notebook: NotebookNode) -> dict[str, str]:
    """By the name of each check that cannot run any more the reason."""
    lost = lost_sections(plan, notebook)
    by_check = ((check.name, lost.get(plan.chapter.section_of(check).name)) for check in plan.checks)
    return {name: N_("after {happened}", happened=happened) for name, happened in by_check if happened}


def cells_left_out(plan: Plan, notebook: NotebookNode) -> frozenset[int]:
    """The indices of the cells of a notebook under way in which a cell raised, among all of its cells, that are not to run."""
    lost, chapter = lost_sections(plan, notebook), plan.chapter
    return frozenset(
        index
        for index, number in code_cells(notebook).items()
        if number == chapter.last_cell or (section := chapter.section_at(number)) is None or section.name in lost
    )


def has_raised(cell: NotebookNode) -> bool:
    """Whether an executed cell ended with an exception."""
    return any(output.output_type == "error" for output in cell.get("outputs", []))
