"""The modules of xpulab as source: what a name in one of them stands for, followed through imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from xpulab import files

PACKAGE = "xpulab"

STAND_INS = {
    f"{PACKAGE}.checks.check": "check",
    f"{PACKAGE}.ranks": "ranks",
    f"{PACKAGE}.chapters.shared.device": "device",
    f"{PACKAGE}.errors": "errors",
    f"{PACKAGE}.files": "files",
    f"{PACKAGE}.records.refusals": "refusals",
}
"""The module to the one of xpulab.upstream.stand_in that takes its place."""


_OF_MODELS = f"{PACKAGE}.upstream.stand_in.models"
_REPLACED = {
    f"{PACKAGE}.chapters.shared.models": ("_folder_of_weights", "folder_of", "_holds_weights", "has_weights", "chosen"),
    f"{PACKAGE}.chapters.shared.live": ("live_loss",),
    f"{PACKAGE}.chapters.shared.resources": ("require", "use_all_cores"),
}
"""By module the functions that stand_in/models.py has in place of its own."""


@dataclass(frozen=True)
class Definition:
    """A name of a module of xpulab: a function, a class, a constant."""

    module: str
    name: str


@dataclass(frozen=True)
class External:
    """A name that an import of another package binds. statement: the import, of this name alone."""

    statement: str


@dataclass(frozen=True)
class WholeModule:
    """A module of xpulab."""

    name: str


Origin = Definition | External | WholeModule


class CannotFollow(Exception):
    """A script cannot be made: the reason, for a reader."""


@dataclass
class Names:
    """What the top level of a source binds. statements: name to the statements that bind or change it, in order."""

    statements: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, Origin] = field(default_factory=dict)


@cache
def names_of(module: str) -> Names:
    """The names of a module of xpulab, with its stand-in in its place. Raises CannotFollow when there is no such module."""
    path = path_of(module)
    if path is None:
        raise CannotFollow(f"there is no module {module}")
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    source = _Unmarked().visit(ast.parse(path.read_text(encoding="utf-8")))
    return read_names(source.body, package)


def read_names(body: list[ast.stmt], package: str = "") -> Names:
    """What these statements bind; package: the one that relative imports start from."""
    names = Names()
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            names.imports |= dict(imported(statement))
        elif not _is_for_types(statement):
            for name in changed(statement):
                names.statements.setdefault(name, []).append(statement)
    for name in names.imports.keys() & names.statements.keys():  # paddle.seed(0) changes no name of ours
        del names.statements[name]
    return names


def imported(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Origin]]:
    """The names that an import binds, and what each stands for."""
    for alias in statement.names:
        if isinstance(statement, ast.Import):
            bound = alias.asname or alias.name.split(".")[0]
            if alias.name.split(".")[0] == PACKAGE:
                raise CannotFollow(f"import {alias.name}: write `from {PACKAGE} import ...`")
            yield bound, External(f"import {alias.name}{f' as {alias.asname}' if alias.asname else ''}")
            continue
        bound, source = alias.asname or alias.name, statement.module or ""
        if source.split(".")[0] != PACKAGE:
            if source != "__future__":
                yield bound, External(f"from {source} import {alias.name}{f' as {alias.asname}' if alias.asname else ''}")
        elif path_of(f"{source}.{alias.name}"):
            yield bound, WholeModule(f"{source}.{alias.name}")
        else:
            yield bound, Definition(source, alias.name)


def origin(definition: Definition) -> Origin:
    """What a name of a module stands for, followed through the imports of modules."""
    if definition.name in _REPLACED.get(definition.module, ()):
        return Definition(_OF_MODELS, definition.name)
    names = names_of(definition.module)
    if definition.name in names.statements:
        return definition
    found = names.imports.get(definition.name)
    if found is None and path_of(f"{definition.module}.{definition.name}"):
        return WholeModule(f"{definition.module}.{definition.name}")
    if found is None:
        raise CannotFollow(f"{definition.module} has no {definition.name} that a script could hold")
    return origin(found) if isinstance(found, Definition) else found


def path_of(module: str) -> Path | None:
    """The file of a module of xpulab, or of its stand-in."""
    if module in STAND_INS:
        return Path(__file__).parent / "stand_in" / f"{STAND_INS[module]}.py"
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return None
    place = (files.ROOT / PACKAGE).joinpath(*parts[1:])
    found = (place / "__init__.py", place.with_suffix(".py"))
    return next((path for path in found if path.is_file()), None)


def changed(statement: ast.stmt) -> set[str]:
    """The names that a statement binds or changes: targets, their roots, and the owner of a method that is called."""
    found: set[str] = set()
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    for node in _own_nodes(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found |= root(node)
        elif isinstance(node, ast.ExceptHandler | ast.FunctionDef | ast.ClassDef) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {name for name, _ in imported(node)}
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
            found |= root(node.value.func)
    return found


def root(node: ast.expr) -> set[str]:
    """The name that an attribute or an item is taken from: {"a"} for a.b[0]; empty when it is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


class _Unmarked(ast.NodeTransformer):
    """Texts without the mark for xpulab's catalogue of messages, which a script does not have."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        return node.args[0] if isinstance(node.func, ast.Name) and node.func.id == "N_" else node


def _own_nodes(statement: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a statement, not those inside functions and classes that it defines, nor of comprehensions' targets."""
    yield statement
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield child
        elif not isinstance(child, ast.Lambda | ast.comprehension):
            yield from _own_nodes(child)


def _is_for_types(statement: ast.stmt) -> bool:
    """Whether it is `if TYPE_CHECKING:`, or text."""
    if isinstance(statement, ast.If):
        return isinstance(statement.test, ast.Name) and statement.test.id == "TYPE_CHECKING"
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
