"""Which notebooks run, at which level, on which cards, and which checks each of them plans."""

from __future__ import annotations

import ast
import glob
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import nbformat
from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from xpulab import files
from xpulab.errors import InputError
from xpulab.records.planned import PlannedCheck, planned_checks
from xpulab.records.record import METADATA_KEY

LEVELS = ("quick", "standard")
"""quick: does it work at all. standard: does it work right."""


@dataclass(frozen=True)
class Plan:
    """One notebook that will be run.

    path: where it is. title: what it is called in reports. capabilities: what it covers, the first part of its checks'
    names. cards: how many it needs. budget_seconds: how long it should take at the level asked for.
    checks: what it plans, in reading order. parameters: the names that its parameters cell sets.
    """

    path: Path
    title: str
    capabilities: tuple[str, ...]
    cards: int
    budget_seconds: float
    checks: tuple[PlannedCheck, ...]
    parameters: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's name without its ending: "01_sft"."""
        return self.path.stem


def make_plans(notebooks: Sequence[str], level: str) -> list[Plan]:
    """The plans for these notebooks (names, paths or globs), or for all in notebooks/ when none is given.

    Raises InputError for a level or notebook that is not there, a notebook that cannot be run, and a file's or check's name
    that two notebooks share.
    """
    if level not in LEVELS:
        raise InputError(f"no level {level!r}: choose {' or '.join(LEVELS)}")
    plans = [read_plan(path, level) for path in find_notebooks(notebooks)]
    _refuse_shared_file_names(plans)
    _refuse_shared_names(plans)
    return plans


def find_notebooks(notebooks: Sequence[str]) -> list[Path]:
    """The files that these names, paths or globs stand for, each once, in the order given; none stands for all."""
    if not notebooks:
        found = sorted(files.NOTEBOOKS.glob("*.ipynb"))
        if not found:
            raise InputError(f"{files.NOTEBOOKS}: holds no notebook")
        return found
    return list(dict.fromkeys(path for given in notebooks for path in _matching(given)))


def read_plan(path: Path, level: str) -> Plan:
    """Read one notebook's plan at this level; raises InputError when it cannot be run as one of ours."""
    notebook = read_notebook(path)
    metadata = _own_metadata(path, notebook)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    checks = planned_checks(sources, str(path))
    for check in checks:
        if check.name.split(".", 1)[0] not in metadata["capabilities"]:
            raise InputError(
                f"{path} cell {check.cell} line {check.line}: check {check.name!r} belongs to no capability of the "
                f"notebook, which lists {', '.join(metadata['capabilities'])}"
            )
    return Plan(
        path=path,
        title=metadata["title"],
        capabilities=tuple(metadata["capabilities"]),
        cards=metadata["cards"],
        budget_seconds=float(metadata["budget_seconds"][level]),
        checks=checks,
        parameters=_parameters(path, notebook),
    )


def read_notebook(path: Path) -> NotebookNode:
    """The notebook in a file; raises InputError with the file and line when it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    try:
        json.loads(text)
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
    except json.JSONDecodeError as error:
        raise InputError(f"{path} line {error.lineno}: not JSON: {error.msg}; restore the file from git") from error
    except (nbformat.ValidationError, ValueError, AttributeError, KeyError, TypeError) as error:
        told = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{path}: JSON, but not a notebook: {told[0]}; restore the file from git") from error
    return notebook


def _matching(given: str) -> list[Path]:
    for candidate in (Path(given), files.NOTEBOOKS / given, files.NOTEBOOKS / f"{given}.ipynb"):
        if candidate.is_file():
            return [candidate.resolve()]
    if any(sign in given for sign in "*?["):
        for folder, pattern in ((Path(), given), (files.NOTEBOOKS, given), (files.NOTEBOOKS, f"{given}.ipynb")):
            found = [folder / name for name in sorted(glob.glob(pattern, root_dir=folder))]
            if notebooks := [path.resolve() for path in found if path.suffix == ".ipynb"]:
                return notebooks
    known = ", ".join(path.stem for path in sorted(files.NOTEBOOKS.glob("*.ipynb")))
    raise InputError(f"no notebook {given!r}: neither a file, nor a glob that matches, nor one of {known or 'none'}")


def _own_metadata(path: Path, notebook: NotebookNode) -> dict:
    schema = json.loads(files.data("schema", "notebook_metadata.schema.json").read_text(encoding="utf-8"))
    metadata = notebook.metadata.get(METADATA_KEY)
    if metadata is None:
        raise InputError(
            f'{path}: its metadata holds no {METADATA_KEY!r}; see "Add a notebook" in README.md for what belongs there'
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
    assigned = ast.parse(TransformerManager().transform_cell(tagged[0].source)).body
    targets = [target for node in assigned for target in _targets(node)]
    return tuple(target.id for target in targets if isinstance(target, ast.Name))


def _targets(node: ast.stmt) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) and node.value is not None else []


def _refuse_shared_file_names(plans: Sequence[Plan]) -> None:
    owners: dict[str, Plan] = {}
    for plan in plans:
        owner = owners.setdefault(plan.name, plan)
        if owner is not plan:
            raise InputError(
                f"{plan.path}: has the name of {owner.path}, and one report cannot hold both; rename one, or run them apart"
            )


def _refuse_shared_names(plans: Sequence[Plan]) -> None:
    owners: dict[str, Plan] = {}
    for plan in plans:
        for check in plan.checks:
            owner = owners.setdefault(check.name, plan)
            if owner is not plan:
                raise InputError(f"{plan.path} cell {check.cell}: check {check.name!r} is planned in {owner.path} too")
