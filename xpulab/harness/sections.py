"""The sections of a notebook: what each needs, and which cells run when only some of them are asked for.

A section begins at a Markdown cell with a heading whose metadata declares it:

    "xpulab": {"section": "merge", "needs": ["adapter"], "part": "lesson", "level": "quick"}

and ends before the next such cell: a cell belongs to the innermost section above it. A heading of a lower level may
declare a section of its own, which does not include its parent: it names the parent in `needs` where it uses its names.
Cells before the first section (title, parameters, imports) always run, and so does the last code cell, verdict().
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema
from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.records.record import LEVELS, METADATA_KEY

CELL_NUMBER = "cell"
"""The key under which a cell of an excerpt keeps its number in the whole notebook."""

INJECTED = "injected-parameters"
"""The tag of the cell that papermill adds."""

_HEADING = re.compile(r"^#{1,6} +(.+)", re.MULTILINE)

PARTS = (N_("lesson"), N_("proof"), N_("exercise"))
"""What a section is for."""


@dataclass(frozen=True)
class Section:
    """One section of a notebook.

    name: unique in the notebook. title: the text of its heading.
    needs: the names of the sections whose names it uses, without those that these need in turn.
    part: one of PARTS. level: the lowest level at which it runs, one of LEVELS.
    cells: the indices of its cells among all cells of the notebook, the heading first.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    part: str
    level: str
    cells: range


def read_sections(path: Path, notebook: NotebookNode) -> tuple[Section, ...]:
    """The sections of a notebook, in reading order; none when it declares none.

    Raises InputError that names the notebook and the cell for metadata that does not fit
    data/schema/section_metadata.schema.json, a cell that declares a section without a heading, a name that is there twice,
    and a need that is unknown or circular.
    """
    starts = [index for index, cell in enumerate(notebook.cells) if "section" in _own(cell)]
    ends = [*starts[1:], len(notebook.cells)]
    sections = tuple(_section(path, notebook, start, end) for start, end in zip(starts, ends, strict=False))
    by_name: dict[str, Section] = {}
    for section in sections:
        if section.name in by_name:
            first = by_name[section.name].cells.start
            raise InputError(f"{_at(path, section)}: section {section.name!r} is declared in cell {first + 1} too; rename one")
        by_name[section.name] = section
    for section in sections:
        for need in section.needs:
            if need not in by_name:
                raise InputError(f"{_at(path, section)}: section {section.name!r} needs {need!r}, which no section is called")
        if section in closure(sections, section.needs):
            raise InputError(f"{_at(path, section)}: section {section.name!r} needs itself, through its needs; remove one need")
    return sections


def closure(sections: Iterable[Section], names: Collection[str]) -> tuple[Section, ...]:
    """The sections of these names and all that they need, in reading order."""
    by_name = {section.name: section for section in sections}
    wanted: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting += by_name[name].needs
    return tuple(section for section in by_name.values() if section.name in wanted)


def up_to(level: str) -> tuple[str, ...]:
    """The levels whose sections run at this level."""
    return LEVELS[: LEVELS.index(level) + 1]


def excerpt(notebook: NotebookNode, sections: Sequence[Section], kept: Sequence[Section]) -> NotebookNode:
    """A copy of the notebook with the cells of the kept sections, those before the first section, and the last code cell.

    Each code cell keeps its number in the whole notebook, counted from 1 among the code cells, in its metadata.
    """
    first = sections[0].cells.start if sections else len(notebook.cells)
    last = max((index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"), default=-1)
    wanted = {*range(first), *(index for section in kept for index in section.cells), last}
    part = NotebookNode({**notebook, "cells": []})
    part.metadata = copy.deepcopy(notebook.metadata)
    number = 0
    for index, cell in enumerate(notebook.cells):
        number += cell.cell_type == "code"
        if index in wanted:
            kept_cell = copy.deepcopy(cell)
            if cell.cell_type == "code":
                kept_cell.metadata.setdefault(METADATA_KEY, {})[CELL_NUMBER] = number
            part.cells.append(kept_cell)
    return part


def code_cells(notebook: NotebookNode) -> dict[int, int]:
    """By the index of each code cell among all cells its number in the whole notebook; none that papermill has added."""
    own = [(index, cell.metadata) for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    own = [(index, metadata) for index, metadata in own if INJECTED not in metadata.get("tags", [])]
    return {
        index: metadata.get(METADATA_KEY, {}).get(CELL_NUMBER, number) for number, (index, metadata) in enumerate(own, start=1)
    }


def validated(declared: dict, schema: str, where: str) -> dict:
    """The metadata of a notebook or a heading, which must fit data/schema/SCHEMA.schema.json; else raises InputError."""
    content = json.loads(files.data("schema", f"{schema}.schema.json").read_text(encoding="utf-8"))
    if error := jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(content).iter_errors(declared)):
        at = "/".join(map(str, error.absolute_path))
        raise InputError(f"{where}: metadata {METADATA_KEY}{'/' if at else ''}{at}: {error.message}")
    return declared


def _section(path: Path, notebook: NotebookNode, start: int, end: int) -> Section:
    cell = notebook.cells[start]
    where = f"{path} cell {start + 1}"
    declared = validated(_own(cell), "section_metadata", where)
    heading = _HEADING.search(cell.source) if cell.cell_type == "markdown" else None
    if heading is None:
        raise InputError(f"{where}: declares section {declared['section']!r}, but is no Markdown cell with a heading")
    needs, cells = tuple(declared["needs"]), range(start, end)
    return Section(declared["section"], heading.group(1).strip(), needs, declared["part"], declared["level"], cells)


def _own(cell: NotebookNode) -> dict:
    return cell.metadata.get(METADATA_KEY, {})


def _at(path: Path, section: Section) -> str:
    return f"{path} cell {section.cells.start + 1}"
