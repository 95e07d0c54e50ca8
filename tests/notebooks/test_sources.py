"""The committed notebooks as a reader and as git see them, without running them."""

from __future__ import annotations

import ast
import importlib
import sys

import nbformat
import pytest

from xpulab import files
from xpulab.checks.baseline_table import BaselineTable
from xpulab.harness.plan import make_plans
from xpulab.records.planned import COMPARING

NOTEBOOKS = sorted(files.NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    return nbformat.read(request.param, as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_all_of_them_can_be_planned_together():
    assert len(make_plans([path.stem for path in NOTEBOOKS], "quick")) == len(NOTEBOOKS) > 0


TABLES = {"table", "baseline", "grid"}
ROWS = (COMPARING - TABLES) | {"rate", "losses", "memory"}
"""The methods of a table that compare; its others are named in the test below."""


def test_every_comparison_has_a_control(notebook):
    without = []
    for cell in code(notebook):
        tree = ast.parse(cell.source)
        for owner, call in method_calls(tree):
            compares = (owner == "check" and call.func.attr in COMPARING - TABLES) or (
                owner in tables_in(tree) and call.func.attr in ROWS
            )
            if compares and "control" not in {keyword.arg for keyword in call.keywords}:
                without.append(ast.unparse(call)[:60])
    assert without == []


def test_every_method_of_a_table_that_adds_a_row_is_known_here():
    methods = {name for name in dir(BaselineTable) if name[0] != "_" and callable(getattr(BaselineTable, name))}
    assert methods - ROWS == {"skip", "stopped_by", "record"}


def method_calls(tree):
    """Every `name.method(...)`, as the name and the call."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            yield node.func.value.id, node


def tables_in(tree):
    """The names that tables have here, and the one that they have where a function is given one."""
    opened = [item for node in ast.walk(tree) if isinstance(node, ast.With) for item in node.items]
    names = {item.optional_vars.id for item in opened if isinstance(item.optional_vars, ast.Name)}
    return names | {"rows"}


@pytest.mark.parametrize("path", sorted((files.DATA / "take_home").glob("*.py")), ids=lambda path: path.stem)
def test_what_a_reader_takes_home_imports_nothing_of_ours(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    of_paddlenlp = {"safetensors", "jinja2", "fastapi", "uvicorn", "pydantic"}  # what its wheel requires is there
    own = {*sys.stdlib_module_names, "numpy", "paddle", "paddlenlp", *of_paddlenlp}
    # other scripts are written with the one that imports them; log is xpulab/align/log.py, of the standard library only
    copied = {"log", *(each.stem for each in path.parent.glob("*.py"))}
    assert {name.split(".")[0] for name in names} <= own | copied


BINDINGS = {
    "cards = 1": "assigned",
    "cards: int = 1": "annotated",
    "cards += 1": "augmented",
    "(first, *cards), rest = values": "unpacked",
    "for cards in (1, 8): pass": "of a loop",
    "with opened as cards: pass": "of a block",
    "[0 for each in values if (cards := each)]": "of a walrus in a comprehension",
    "import numpy as cards": "imported",
    "del cards": "deleted",
    "def cards(): pass": "defined",
    "def other():\n    global cards\n    cards = 1": "global",
    "try: pass\nexcept OSError as cards: pass": "of an error",
    "match values:\n    case [cards]: pass": "of a match",
}


@pytest.mark.parametrize("source", BINDINGS, ids=BINDINGS.get)
def test_lint_sees_a_cell_that_sets_a_parameter_anew(lint, source):
    assert "cards" in lint.bound_in(source)


@pytest.mark.parametrize("source", ["[cards for cards in values]", "def other(cards): cards = 1", "lambda cards: 1"])
def test_lint_passes_over_names_of_other_scopes(lint, source):
    assert "cards" not in lint.bound_in(source)


@pytest.fixture
def lint(monkeypatch):
    """tools/lint_project.py as a module."""
    monkeypatch.syspath_prepend(str(files.ROOT / "tools"))
    return importlib.import_module("lint_project")
