"""The statements of a chapter that one check depends on: a slice of its code, without pictures and other checks."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator

from xpulab.harness.chapter import Chapter
from xpulab.harness.sections import excerpt
from xpulab.records.planned import PlannedCheck, names_in, python_of
from xpulab.upstream.modules import PACKAGE, changed, root
from xpulab.upstream.scopes import free_in

_SHOWN = re.compile(r"xpulab\.chapters\.\w+\.(operator_)?pictures|xpulab\.checks\.verdict")
"""Modules that show something to a reader: a script has no use for them."""

_PARAMETERS = "parameters"

_PURE = frozenset({*dir(builtins), "display"})
"""Functions that change nothing that they are given."""


def slice_for(chapter: Chapter, check: PlannedCheck, parameters: dict[str, object]) -> list[ast.stmt]:
    """What the check needs of its chapter, in order: imports, parameters with these values, definitions, statements.

    A statement is kept when it binds or changes a name that a later kept one uses, or acts on a whole package: a seed, a flag.
    """
    statements = list(_statements(chapter, check, parameters))
    imports = [each for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]
    packages = {alias.asname or alias.name.split(".")[0] for each in imports for alias in each.names}
    own = {alias.asname or alias.name for each in imports if _is_own(each) for alias in each.names}
    functions = {each.name: free_in(each) for each in statements if isinstance(each, ast.FunctionDef | ast.ClassDef)}
    views = _views(statements, packages)
    needed: set[str] = set()
    kept: list[ast.stmt] = []
    for statement in reversed(statements):
        if statement in imports:
            kept.append(statement)
            continue
        if not needed and check.name not in names_in(statement):
            continue  # it comes after the check
        seen_through = {view for view, of in views.items() if of & needed}
        if check.name in names_in(statement) or _matters(statement, needed | seen_through, packages, own, functions):
            kept.append(_WithoutOthers(check.name).visit(statement))
            needed -= _replaced(statement)
            needed |= _with_functions(free_in(kept[-1]), functions)
    return list(reversed(kept))


def _with_functions(names: set[str], functions: dict[str, set[str]]) -> set[str]:
    """The names, and all that the functions among them take from outside when they are called."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += functions.get(name, ())
    return found


def _views(statements: list[ast.stmt], packages: set[str]) -> dict[str, set[str]]:
    """For each name that is taken from others (middle = x[:, 2:4]) those: to change it may change them."""
    taken: dict[str, set[str]] = {}
    for statement in statements:
        if isinstance(statement, ast.Assign):
            value = statement.value.func if isinstance(statement.value, ast.Call) else statement.value
            for name in (each.id for target in statement.targets for each in _targets(target)):
                taken.setdefault(name, set()).update(root(value) - packages - {name})
    return {name: _with_functions(of, taken) for name, of in taken.items() if of}


def _replaced(statement: ast.stmt) -> set[str]:
    """The names whose earlier values are lost with the statement, whatever happens in it."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    if isinstance(statement, ast.Assign):
        return {each.id for target in statement.targets for each in _targets(target)}
    if isinstance(statement, ast.With):  # its body runs
        return {name for each in statement.body for name in _replaced(each)}
    return set()


def _targets(target: ast.expr) -> Iterator[ast.Name]:
    if isinstance(target, ast.Name):
        yield target
    elif isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _targets(each.value if isinstance(each, ast.Starred) else each)


class _WithoutOthers(ast.NodeTransformer):
    """Removes what other checks compare from a statement that is needed for what it binds."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse"):
            body = getattr(node, name, None)
            if isinstance(body, list):
                kept = [each for each in body if not self._compares_another(each)]
                setattr(node, name, kept or ([ast.Pass()] if name == "body" else []))
        return node

    def _compares_another(self, statement: ast.AST) -> bool:
        names = names_in(statement)
        return isinstance(statement, ast.Expr) and bool(names) and self._wanted not in names


def _is_own(statement: ast.Import | ast.ImportFrom) -> bool:
    return isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] == PACKAGE


def _matters(statement: ast.stmt, needed: set[str], packages: set[str], own: set[str], functions: dict[str, set[str]]) -> bool:
    """Whether it binds or changes what is needed. A call may change what it is given, unless a package like numpy has it."""
    if changed(statement) & needed - packages:
        return True
    if names_in(statement) or isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return False
    calls = [each for each in ast.walk(statement) if isinstance(each, ast.Call) and not _is_of(each, (packages - own) | _PURE)]
    given = {name for call in calls for argument in _arguments(call) for name in _handed_on(argument, functions)}
    if given & needed - packages:
        return True
    if not isinstance(statement, ast.Expr) or not isinstance(call := statement.value, ast.Call) or _is_of(call, _PURE):
        return False
    names = {name for each in _arguments(call) for name in free_in(each)} - packages - _PURE
    return bool(names & needed) or (_is_of(call, packages) and not names)


def _handed_on(argument: ast.expr, functions: dict[str, set[str]]) -> set[str]:
    """The names whose values a call may change through an argument; through a function those that it uses."""
    if isinstance(argument, ast.Lambda):
        return _with_functions(free_in(argument), functions)
    names = root(argument)
    return _with_functions(names, functions) if names & functions.keys() else names


def _is_of(call: ast.Call, names: Collection[str]) -> bool:
    return bool(root(call.func)) and root(call.func) <= set(names)


def _arguments(call: ast.Call) -> list[ast.expr]:
    owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*owner, *call.args, *(keyword.value for keyword in call.keywords)]


def _statements(chapter: Chapter, check: PlannedCheck, parameters: dict[str, object]) -> Iterator[ast.stmt]:
    """The statements of the sections that the check needs, without those that only show or silence something."""
    part = excerpt(chapter.notebook, chapter.sections, chapter.closure_of((check,)))
    shown: set[str] = set()
    for cell in (cell for cell in part.cells if cell.cell_type == "code"):
        for statement in _where_paddle_works(ast.parse(python_of(cell.source)).body):
            if _PARAMETERS in cell.metadata.get("tags", []):
                yield _with_value(statement, parameters)
            elif isinstance(statement, ast.ImportFrom):
                shown |= _names_for_readers(statement)
                statement.names = [alias for alias in statement.names if (alias.asname or alias.name) not in shown]
                yield from [statement] if statement.names else []
            elif not (isinstance(statement, ast.Expr) and (free_in(statement) & shown or _silences(statement.value))):
                yield statement


def _silences(call: ast.expr) -> bool:
    """Whether it calls a workaround that hides warnings or the log: who looks for a defect wants to see them."""
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr.startswith("silence_")


def _where_paddle_works(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, with what `if paddle_works():` guards in its place."""
    for statement in body:
        if isinstance(statement, ast.If) and "paddle_works" in free_in(statement.test):
            yield from statement.body
        else:
            yield statement


def _names_for_readers(statement: ast.ImportFrom) -> set[str]:
    """The names that an import binds to something that only shows."""
    source = statement.module or ""
    bound = {alias.asname or alias.name: f"{source}.{alias.name}" for alias in statement.names}
    return {name for name, path in bound.items() if _SHOWN.match(path)}


def _with_value(statement: ast.stmt, parameters: dict[str, object]) -> ast.stmt:
    if isinstance(statement, ast.Assign) and isinstance(name := statement.targets[0], ast.Name) and name.id in parameters:
        return ast.parse(f"{name.id} = {parameters[name.id]!r}").body[0]
    return statement
