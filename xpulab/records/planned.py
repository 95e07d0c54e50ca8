"""The checks that a notebook plans, read from its source, so that a check which a branch silently skips is reported."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, takewhile

from xpulab.errors import InputError
from xpulab.records.record import CHECK_NAME

COMPARING = frozenset(
    {"close", "equal", "bitwise", "below", "above", "between", "finite", "true", "raises", "table", "baseline", "grid"}
)
"""The methods of `check` that compare something."""


@dataclass(frozen=True)
class PlannedCheck:
    """A check in a cell's source.

    name: "<capability>.<what>".
    method: the method of `check` that is called.
    cell, line: where the call is, both counted from 1.
    """

    name: str
    method: str
    cell: int
    line: int


@lru_cache(maxsize=1024)
def python_of(source: str) -> str:
    """The source of a cell as Python: IPython's magics and shell commands become function calls."""
    lines = list(dropwhile(str.isspace, source.splitlines(keepends=True)))  # IPython removes empty lines at the beginning
    text = "".join(lines)
    text = text if text.endswith("\n") else f"{text}\n"
    if lines and not lines[0][0].isspace() and _tree_of(text):
        return text
    from IPython.core.inputtransformer2 import TransformerManager  # takes longer to import than to plan a book without magics

    return TransformerManager().transform_cell(source)


@lru_cache(maxsize=1024)
def _tree_of(text: str) -> ast.Module | None:
    """What it says as Python; None when it is none, as magics and shell commands are. Not to be changed: it is kept."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def planned_checks(cells: Iterable[str], where: str, first: int = 1) -> tuple[PlannedCheck, ...]:
    """The checks that the sources of a notebook's code cells plan, in reading order, each name once.

    A skip may have the name of the comparison that it replaces; two comparisons must not have the same name.

    cells: the sources of the code cells.
    where: the name of the notebook, for error messages.
    first: the number of the first cell.
    Raises InputError with `where`, cell and line for a name that is not a literal, has no capability, or is used twice.
    """
    planned: dict[str, PlannedCheck] = {}
    for number, source in enumerate(cells, start=first):
        for check in _checks_in(source, number, where):
            earlier = planned.get(check.name)
            if earlier and "skip" not in (earlier.method, check.method):
                raise InputError(
                    f"{where} cell {check.cell} line {check.line}: check {check.name!r} is planned already in cell "
                    f"{earlier.cell} line {earlier.line}; give it a name of its own"
                )
            if not earlier or earlier.method == "skip":
                planned[check.name] = check
    return tuple(sorted(planned.values(), key=lambda check: (check.cell, check.line)))


def names_in(tree: ast.AST) -> list[str]:
    """The names of the checks in a cell that has been parsed, each once."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _method(node.func)]
    return list(dict.fromkeys(_planned(call, 0, "this notebook").name for call in calls))


def _checks_in(source: str, cell: int, where: str) -> list[PlannedCheck]:
    blank = len(list(takewhile(str.isspace, source.splitlines(keepends=True))))  # IPython removes these lines
    try:
        tree = _tree_of(python_of(source)) or ast.parse(python_of(source))
    except SyntaxError as error:
        raise InputError(f"{where} cell {cell} line {(error.lineno or 1) + blank}: not Python: {error.msg}") from error
    if "check" not in source:
        return []
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _method(node.func)]
    return [_planned(call, cell, where, blank) for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset))]


def _method(function: ast.expr) -> str:
    """The method of `check` that is called; "" for any other function."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "check":
        return function.attr if function.attr in COMPARING | {"skip"} else ""
    return ""


def _planned(call: ast.Call, cell: int, where: str, blank: int = 0) -> PlannedCheck:
    first = call.args[0] if call.args else None
    line = call.lineno + blank
    at = f"{where} cell {cell} line {line}"
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        raise InputError(
            f'{at}: a check\'s name must be a literal, as in check.close("sft.loss", ...), so that it can be missed '
            "when it does not run; for many cases use one check.table with a row a case"
        )
    if not CHECK_NAME.fullmatch(first.value):
        why = "has no capability, or another character than letters, digits, -, _ and +"
        raise InputError(f'{at}: check {first.value!r} {why}: name it "<capability>.<what>"')
    return PlannedCheck(first.value, _method(call.func), cell, line)
