"""One notebook, read once: its metadata, its sections, the checks that it plans, the parameters that it takes."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import jsonschema
import nbformat
from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.harness.sections import Section, closure, read_sections
from xpulab.messages import ENGLISH
from xpulab.records.planned import PlannedCheck, planned_checks, python_of
from xpulab.records.record import METADATA_KEY


@dataclass(frozen=True)
class Chapter:
    """A notebook of the suite.

    path: where it is. notebook: what the file holds; nobody changes it.
    title: what it is called in reports. capabilities: what it covers, the first part of its checks' names.
    cards: how many it needs. budget_seconds: how long it should take, by level.
    sections: in reading order. checks: what it plans, in reading order. parameters: the names that its parameters cell sets.
    environment: the one that it needs, of xpulab.records.environments; empty for .venv.
    """

    path: Path
    notebook: NotebookNode = field(repr=False, compare=False)
    title: str
    capabilities: tuple[str, ...]
    cards: int
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
        return code_cells(self.notebook)

    def section_of(self, check: PlannedCheck) -> Section:
        """The section that a check of this notebook stands in."""
        index = self._positions[check.cell - 1]
        return next(section for section in self.sections if index in section.cells)

    def closure_of(self, checks: tuple[PlannedCheck, ...]) -> tuple[Section, ...]:
        """The sections that these checks stand in, and all that they need."""
        return closure(self.sections, {self.section_of(check).name for check in checks})


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
    sections = read_sections(path, notebook)
    _refuse_checks_outside(path, notebook, sections, checks)
    return Chapter(
        path=path,
        notebook=notebook,
        title=metadata["title"],
        capabilities=tuple(metadata["capabilities"]),
        cards=metadata["cards"],
        budget_seconds={level: float(seconds) for level, seconds in metadata["budget_seconds"].items()},
        sections=sections,
        checks=checks,
        parameters=_parameters(path, notebook),
        environment=metadata.get("environment", ""),
    )


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file; raises InputError with the file and line when it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
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


def code_cells(notebook: NotebookNode) -> list[int]:
    """The indices of the code cells among all cells."""
    return [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def _refuse_checks_outside(
    path: Path, notebook: NotebookNode, sections: tuple[Section, ...], checks: tuple[PlannedCheck, ...]
) -> None:
    first = sections[0].cells.start if sections else len(notebook.cells)
    positions = code_cells(notebook)
    for check in checks:
        if positions[check.cell - 1] < first:
            raise InputError(
                f"{path} cell {check.cell} line {check.line}: check {check.name!r} stands outside any section; put "
                '{"section": NAME, "needs": [], "part": "lesson", "level": "quick"} under "xpulab" into the metadata of the '
                "heading above it"
            )


def _own_metadata(path: Path, notebook: NotebookNode) -> dict:
    schema = json.loads(files.data("schema", "notebook_metadata.schema.json").read_text(encoding="utf-8"))
    metadata = notebook.metadata.get(METADATA_KEY)
    if metadata is None:
        raise InputError(
            f'{path}: its metadata has no {METADATA_KEY!r}; "Add a chapter" in CONTRIBUTING.md says what it must hold'
        )
    if error := jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(schema).iter_errors(metadata)):
        at = "/".join(map(str, error.absolute_path))
        raise InputError(f"{path}: metadata {METADATA_KEY}{'/' if at else ''}{at}: {error.message}")
    return metadata


def _parameters(path: Path, notebook: NotebookNode) -> tuple[str, ...]:
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        raise InputError(
            f'{path}: {len(tagged)} code cells are tagged "parameters", one is needed: papermill puts the device there. Tag '
            "the cell that sets device, level, cards and seed"
        )
    assigned = ast.parse(python_of(tagged[0].source)).body
    targets = [target for node in assigned for target in _targets(node)]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) and node.value is not None else []
