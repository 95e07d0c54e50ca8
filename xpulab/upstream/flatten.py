"""One script from statements that use modules of xpulab: what they use is copied in, function by function, and nothing else."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from xpulab.upstream.modules import (
    STAND_INS,
    CannotFollow,
    Definition,
    External,
    Names,
    Origin,
    WholeModule,
    imported,
    names_of,
    origin,
    read_names,
)
from xpulab.upstream.scopes import SCOPES, bound_in, stored

_MAIN = "__main__"
_UNKNOWN_OUTSIDE_A_NOTEBOOK = frozenset({"display", "get_ipython"})


def flatten(statements: Sequence[ast.stmt]) -> str:
    """The source of a script that does what the statements do, without an import of xpulab.

    Docstrings stay, comments and annotations of functions do not. Raises CannotFollow when it cannot be made.
    """
    prefixed: set[Definition] = set()
    while True:
        script = _Script(statements, prefixed)
        try:
            return script.source()
        except _Captured as captured:  # a local variable has the name: this definition gets a longer one
            if captured.definition in prefixed:
                raise CannotFollow(f"{captured.definition.name} has the name of a local variable") from None
            prefixed.add(captured.definition)


class _Captured(Exception):
    def __init__(self, definition: Definition) -> None:
        self.definition = definition


class _Script:
    """Collects definitions and imports in the order in which they are needed."""

    def __init__(self, statements: Sequence[ast.stmt], prefixed: set[Definition]) -> None:
        self._statements, self._prefixed = statements, prefixed
        self._main = read_names(list(statements))
        self._taken: dict[str, object] = {name: _MAIN for name in self._main.statements}
        self._names: dict[Definition, str] = {}
        self._imports: dict[str, None] = {}
        self._definitions: list[ast.stmt] = []
        self._emitted: set[int] = set()

    def source(self) -> str:
        """The script."""
        lines: list[str] = []
        late: list[str] = []
        for each in self._statements:
            if isinstance(each, ast.Import | ast.ImportFrom):
                own = [found.statement for _, found in imported(each) if isinstance(found, External)]
                late += own if not _is_installed(each) else []  # the statement before it says where the module is
                lines += own if not _is_installed(each) else []
            else:
                lines.append(ast.unparse(self._renamed(each, _MAIN, self._main)))
        first = [line for line in self._imports if line not in late]
        return "\n".join([*first, *map(ast.unparse, self._definitions), *lines]) + "\n"

    def resolve(self, module: str, names: Names, name: str) -> Origin | None:
        """What a free name stands for; None when it keeps its name."""
        if name in names.statements:
            return None if module == _MAIN else origin(Definition(module, name))
        found = names.imports.get(name)
        if found is None:
            if name == "__file__" and (module in STAND_INS or ".stand_in." in module):
                return None
            if not hasattr(builtins, name) or name in _UNKNOWN_OUTSIDE_A_NOTEBOOK:
                raise CannotFollow(f"{module} uses {name}, which is not defined there")
            return None
        return origin(found) if isinstance(found, Definition) else found

    def name_of(self, found: Definition | External, bound: str) -> str:
        """The name that it has in the script; its definition is added when it is needed for the first time."""
        if isinstance(found, External):
            known = self._taken.setdefault(bound, found.statement)
            if str(known).split(".")[0] != found.statement.split(".")[0]:  # import a and import a.b bind the same name
                raise CannotFollow(f"{bound} is {found.statement!r} in one place and something else in another")
            self._imports[found.statement] = None
            return bound
        if found not in self._names:
            self._names[found] = self._free_name(found)
            self._add(found)
        return self._names[found]

    def _free_name(self, definition: Definition) -> str:
        prefix = definition.module.rpartition(".")[2]
        wanted = [definition.name, f"{prefix}_{definition.name.lstrip('_')}", f"{prefix}_{definition.name.lstrip('_')}_"]
        for name in wanted[definition in self._prefixed :]:
            if self._taken.setdefault(name, definition) == definition:
                return name
        raise CannotFollow(f"no free name for {definition.name} of {definition.module}")

    def _add(self, definition: Definition) -> None:
        names = names_of(definition.module)
        for statement in names.statements[definition.name]:
            if id(statement) not in self._emitted:
                self._emitted.add(id(statement))
                self._definitions.append(self._renamed(statement, definition.module, names))

    def _renamed(self, statement: ast.stmt, module: str, names: Names) -> ast.stmt:
        copied = ast.parse(ast.unparse(statement)).body[0]
        renamed: ast.stmt = _Renamer(self, module, names).visit(copied)
        return ast.fix_missing_locations(renamed)


class _Renamer(ast.NodeTransformer):
    """Gives free names of a source those that they have in the script."""

    def __init__(self, script: _Script, module: str, names: Names) -> None:
        self._script, self._module, self._names = script, module, names
        self._locals: list[Mapping[str, Origin | None]] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self._origin(node.id)
        if found is None:
            return node
        if isinstance(found, WholeModule):
            raise CannotFollow(f"{self._module} hands the module {found.name} on")
        return ast.Name(self._new_name(found, node.id), node.ctx)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        found = self._module_of(node.value)
        if found is None:
            return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        if not isinstance(node.ctx, ast.Load):
            raise CannotFollow(f"{self._module} sets {node.attr} of {found.name}")
        target = origin(Definition(found.name, node.attr))
        if isinstance(target, WholeModule):
            raise CannotFollow(f"{self._module} hands the module {target.name} on")
        return ast.Name(self._new_name(target, node.attr), ast.Load())

    def visit_Global(self, node: ast.Global) -> ast.stmt:
        return ast.Global([self._script.name_of(Definition(self._module, name), name) for name in node.names])

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        if not self._locals:
            node.name = self._bound_name(node.name)
        node.returns = None
        return self._in_scope(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.decorator_list = [self.visit(each) for each in node.decorator_list]
        node.bases = [self.visit(each) for each in node.bases]
        node.keywords = [self.visit(each) for each in node.keywords]
        if not self._locals:
            node.name = self._bound_name(node.name)
        # names of a class body are seen in it and not in its methods; none of ours hides a name that a method needs
        node.body = [self._in_class(each, node) for each in node.body]
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return self._in_scope(node)

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        return self._in_scope(node)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp  # type: ignore[assignment]

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | None:
        if node.value is None:
            return None
        return ast.Assign([self.visit(node.target)], self.visit(node.value))

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | None:
        return None if (node.module or "").split(".")[0] == "xpulab" else node

    def _in_class(self, node: ast.stmt, owner: ast.ClassDef) -> ast.stmt:
        if isinstance(node, ast.AnnAssign):  # a field of a dataclass: its type as text, so that nothing more is needed
            node.annotation = ast.Constant(ast.unparse(node.annotation))
            node.value = self.visit(node.value) if node.value else None
            return node
        own = {name: None for statement in owner.body for name in stored(statement)}
        self._locals.append({} if isinstance(node, SCOPES) else own)
        try:
            return self.visit(node)
        finally:
            self._locals.pop()

    def _in_scope(self, node: Any) -> Any:
        if isinstance(node, SCOPES):  # defaults belong to the scope around it
            node.args.defaults = [self.visit(each) for each in node.args.defaults]
            node.args.kw_defaults = [each and self.visit(each) for each in node.args.kw_defaults]
        self._locals.append(bound_in(node))
        try:
            if isinstance(node, SCOPES):
                for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg):
                    if arg is not None:
                        arg.annotation = None
                body = node.body if isinstance(node.body, list) else [node.body]
                visited = [new for each in body if (new := self.visit(each)) is not None]
                node.body = visited if isinstance(node.body, list) else visited[0]
                if isinstance(node.body, list) and not node.body:
                    node.body = [ast.Pass()]
                return node
            return self.generic_visit(node)
        finally:
            self._locals.pop()

    def _origin(self, name: str) -> Origin | None:
        for scope in reversed(self._locals):
            if name in scope:
                found = scope[name]
                return origin(found) if isinstance(found, Definition) else None if isinstance(found, External) else found
        return self._script.resolve(self._module, self._names, name)

    def _module_of(self, node: ast.expr) -> WholeModule | None:
        """The module of xpulab that an expression is, a name or a chain of attributes."""
        if isinstance(node, ast.Name):
            found = self._origin(node.id)
            return found if isinstance(found, WholeModule) else None
        if isinstance(node, ast.Attribute) and (outer := self._module_of(node.value)):
            target = origin(Definition(outer.name, node.attr))
            return target if isinstance(target, WholeModule) else None
        return None

    def _new_name(self, found: Definition | External, bound: str) -> str:
        new = self._script.name_of(found, bound)
        if any(new in scope and scope[new] is None for scope in self._locals) and isinstance(found, Definition):
            raise _Captured(found)
        return new

    def _bound_name(self, name: str) -> str:
        return name if self._module == _MAIN else self._script.name_of(Definition(self._module, name), name)


def _is_installed(statement: ast.Import | ast.ImportFrom) -> bool:
    """Whether the module can be imported before a statement of the script has changed sys.path."""
    modules = [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
    return all(find_spec(module.split(".")[0]) for module in modules)
