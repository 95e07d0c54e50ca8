"""The committed notebooks as a reader and as git see them, without running them."""

from __future__ import annotations

import ast
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
    own = {*sys.stdlib_module_names, "numpy", "paddle", "paddlenlp", "safetensors"}
    copied = {"log"}  # xpulab/align/log.py, which needs the standard library only, beside the script of who wants a log
    assert {name.split(".")[0] for name in names} <= own | copied
