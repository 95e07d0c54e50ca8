"""Small notebooks for the tests of the harness, and one run of many of them that all tests share."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4

IMPORTS = "from xpulab.checks import check\nfrom xpulab.checks.verdict import verdict"
PARAMETERS = 'device = "auto"\nlevel = "quick"\ncards = 1\nseed = 0'
GOOD = 'check.equal("demo.good", 2, 2, control=3, means="two is two")'
BUDGET = {"smoke": 20, "quick": 30, "standard": 60}
METADATA = {"title": "A demo", "capabilities": ["demo"], "cards": 1, "budget_seconds": BUDGET}
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def make(
    *cells: str | NotebookNode,
    parameters: str | None = PARAMETERS,
    ends: bool = True,
    kernel: dict | None = KERNEL,
    metadata: object = METADATA,
    **changed: object,
) -> NotebookNode:
    """A notebook: cell 1 the parameters, cell 2 the imports, from 3 on the given cells, last verdict().

    changed: entries of the xpulab metadata; budget is that of both levels.
    """
    head = [] if parameters is None else [v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    body = [cell if isinstance(cell, NotebookNode) else v4.new_code_cell(cell) for cell in cells]
    tail = [v4.new_code_cell("verdict()", metadata={"tags": ["nbval-ignore-output"]})] if ends else []
    notebook = v4.new_notebook(cells=[*head, v4.new_code_cell(IMPORTS), section("all"), *body, *tail])
    if "budget" in changed:
        budget = changed.pop("budget")
        changed["budget_seconds"] = {"smoke": budget, "quick": budget, "standard": budget}
    if isinstance(metadata, dict):
        metadata = {**metadata, **changed}
    notebook.metadata.update({key: value for key, value in {"kernelspec": kernel, "xpulab": metadata}.items() if value})
    return notebook


def section(name: str, *needs: str, level: str = "quick", **declared: object) -> NotebookNode:
    """A heading cell that declares a section; declared: more of its metadata."""
    declared = {"section": name, "needs": list(needs), "part": "lesson", "level": level, **declared}
    return v4.new_markdown_cell(f"## {name}", metadata={"xpulab": declared})


def save(notebook: NotebookNode, path: Path) -> Path:
    """Write a notebook; returns where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="session")
def book() -> Callable[..., NotebookNode]:
    """Makes a small notebook."""
    return make


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Makes a small notebook and saves it: put("name", *cells, **options) returns its path."""
    return lambda name, *cells, **options: save(make(*cells, **options), tmp_path / f"{name}.ipynb")


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """once(name, fill): a folder that `fill` has filled, once for all of pytest-xdist's workers."""

    def folder(name: str, fill: Callable[[Path], None]) -> Path:
        base = tmp_path_factory.getbasetemp()
        base = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
        filled = base / name
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not filled.exists():
                filled.mkdir()
                fill(filled)
                (filled / "done.json").write_text(json.dumps(True))
        assert (filled / "done.json").exists(), "the run that all tests share has failed"
        return filled

    return folder
