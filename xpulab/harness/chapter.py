"""One notebook, read once: its metadata, its sections, the checks that it plans, the parameters that it takes."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.sections import Section, code_cells, read_sections, validated
from xpulab.messages import ENGLISH, N_
from xpulab.records.planned import PlannedCheck, planned_checks, python_of
from xpulab.records.record import METADATA_KEY


@dataclass(frozen=True)
class Chapter:
    """A notebook of the suite.

    path: where it is. notebook: what the file holds; nobody changes it.
    title: what it is called in reports.
    cards: how many it needs. most_cards: how many it makes use of, where there are more.
    budget_seconds: how long it should take, by level.
    sections: in reading order. checks: what it plans, in reading order. parameters: the names that its parameters cell sets.
    environment: the one that it needs, of xpulab.records.environments; empty for .venv.
    """

    path: Path
    notebook: NotebookNode = field(repr=False, compare=False)
    title: str
    cards: int
    most_cards: int
    budget_seconds: dict[str, float]
    sections: tuple[Section, ...]
    checks: tuple[PlannedCheck, ...]
    parameters: tuple[str, ...]
    environment: str = ""

    @property
    def language(self) -> str:
        """What its text is written in, one of xpulab.messages.LANGUAGES."""
        return self.notebook.metadata[METADATA_KEY].get("language", ENGLISH)

    @property
    def is_of_release(self) -> bool:
        """Whether it judges the release, and not the machine."""
        return self.path.parent.name == files.RELEASE

    @cached_property
    def _positions(self) -> list[int]:
        return list(code_cells(self.notebook))

    @property
    def last_cell(self) -> int:
        """The number of the last code cell, verdict(), counted from 1 among the code cells."""
        return len(self._positions)

    def section_at(self, number: int) -> Section | None:
        """The section that a code cell stands in, counted from 1; None before the first section."""
        index = self._positions[number - 1] if 0 < number <= self.last_cell else -1
        return next((section for section in self.sections if index in section.cells), None)

    def section_of(self, check: PlannedCheck) -> Section:
        """The section that a check of this notebook stands in."""
        section = self.section_at(check.cell)
        assert section is not None, "read_chapter refuses checks outside any section"
        return section

    def place_of(self, number: int) -> str:
        """What a code cell is called in reports: "cell 5 of section merge", or "cell 2" before the first section."""
        if section := self.section_at(number):
            return N_("cell {number} of section {name}", number=number, name=section.name)
        return N_("cell {number}", number=number)


def read_chapter(path: Path) -> Chapter:
    """Read a notebook; raises InputError when it cannot be run as one of the suite's."""
    notebook = read_notebook(path)
    metadata = _own_metadata(path, notebook)
    checks = planned_checks([cell.source for cell in notebook.cells if cell.cell_type == "code"], str(path))
    for check in checks:
        if check.name.split(".", 1)[0] not in metadata["capabilities"]:
            raise InputError(
                f"{path} cell {check.cell} line {check.line}: check {check.name!r} belongs to no capability of the "
                f"notebook, which lists {', '.join(metadata['capabilities'])}"
            )
    chapter = Chapter(
        path=path,
        notebook=notebook,
        title=metadata["title"],
        cards=metadata["cards"],
        most_cards=max(metadata["cards"], metadata.get("most_cards", 1)),
        budget_seconds={level: float(seconds) for level, seconds in metadata["budget_seconds"].items()},
        sections=read_sections(path, notebook),
        checks=checks,
        parameters=_parameters(path, notebook),
        environment=metadata.get("environment", ""),
    )
    for check in checks:
        if chapter.section_at(check.cell) is None:
            raise InputError(
                f"{path} cell {check.cell} line {check.line}: check {check.name!r} stands outside any section; put "
                '{"section": NAME, "needs": [], "part": "lesson", "level": "quick"} under "xpulab" into the metadata of the '
                "heading above it"
            )
    return chapter


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file; raises InputError with the file and line when it is not one."""
    text = files.read_text(path)
    try:
        json.loads(text)
        invalid: dict[str, Exception] = {}
        notebook = nbformat.reads(text, as_version=4, capture_validation_error=invalid)
        if invalid:
            raise invalid["ValidationError"]
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {error.lineno}: not JSON: {error.msg}; restore the file from git") from error
    except (nbformat.ValidationError, ValueError, AttributeError, KeyError, TypeError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path}: JSON, but not a notebook: {first}; restore the file from git") from error
    return notebook


def _own_metadata(path: Path, notebook: NotebookNode) -> dict:
    metadata = notebook.metadata.get(METADATA_KEY)
    if metadata is None:
        raise InputError(
            f'{path}: its metadata has no {METADATA_KEY!r}; "Add a chapter" in CONTRIBUTING.md says what it must hold'
        )
    return validated(metadata, "notebook_metadata", str(path))


def _parameters(path: Path, notebook: NotebookNode) -> tuple[str, ...]:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise InputError(
            f'{path}: {len(tagged)} code cells are tagged "parameters", one is needed: papermill puts the device there. Tag '
            "the cell that sets device, level, cards and seed"
        )
    assigned = ast.parse(python_of(tagged[0].source)).body
    names = (name for node in assigned if isinstance(node, ast.Assign) for name in ast.walk(node))
    return tuple(name.id for name in names if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store))
