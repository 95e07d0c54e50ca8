"""What a function, a comprehension or a statement binds in its own scope, and which names it takes from outside."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from xpulab.upstream.modules import Definition, Origin, WholeModule, imported

SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def free_in(node: ast.AST) -> set[str]:
    """The names that a statement reads from the scope around it; those in functions that it defines as well."""
    if isinstance(node, (*SCOPES, *COMPREHENSIONS)):
        outside = {name for each in getattr(node, "decorator_list", []) for name in free_in(each)}
        inner = {name for child in ast.iter_child_nodes(node) for name in free_in(child)}
        return outside | (inner - bound_in(node).keys())
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, ast.For):
        return free_in(node.iter) | (_free_in_block(node.body) - stored(node.target)) | _free_in_block(node.orelse)
    if isinstance(node, ast.With):
        bound = {name for item in node.items if item.optional_vars for name in stored(item.optional_vars)}
        return {name for item in node.items for name in free_in(item.context_expr)} | (_free_in_block(node.body) - bound)
    found = {name for child in ast.iter_child_nodes(node) for name in free_in(child)}
    if isinstance(node, ast.AugAssign):
        found |= stored(node.target)
    return found


def _free_in_block(body: list[ast.stmt]) -> set[str]:
    """The names that statements, one after another, read before one of them has bound them."""
    needed: set[str] = set()
    for statement in reversed(body):
        if isinstance(statement, ast.Assign | ast.FunctionDef):
            needed -= stored(statement)
        needed |= free_in(statement)
    return needed


def bound_in(node: ast.AST) -> dict[str, Origin | None]:
    """The names that a function or a comprehension binds; of an import of xpulab what they stand for."""
    bound: dict[str, Origin | None] = {}
    if isinstance(node, COMPREHENSIONS):
        return {name: None for each in node.generators for name in stored(each.target)}
    if isinstance(node, SCOPES):
        given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
        bound |= {arg.arg: None for arg in given if arg is not None}
        body: Iterable[ast.AST] = node.body if isinstance(node.body, list) else [node.body]
        outside: set[str] = set()
        for statement in body:
            for name in stored(statement, outside):
                bound.setdefault(name, None)
            bound |= {
                name: found if isinstance(found, Definition | WholeModule) else None
                for each in ast.walk(statement)
                if isinstance(each, ast.Import | ast.ImportFrom)
                for name, found in imported(each)
            }
        for name in outside:
            bound.pop(name, None)
    return bound


def stored(node: ast.AST, outside: set[str] | None = None) -> set[str]:
    """The names that a node binds in its own scope; `outside` receives those that it declares global or nonlocal."""
    found: set[str] = set()
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
        found.add(node.id)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    elif isinstance(node, ast.Global | ast.Nonlocal) and outside is not None:
        outside |= set(node.names)
    elif isinstance(node, ast.Lambda):
        return found
    elif isinstance(node, ast.ExceptHandler) and node.name:
        found.add(node.name)
    if isinstance(node, COMPREHENSIONS):  # only what := binds leaves a comprehension
        return {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}
    for child in ast.iter_child_nodes(node):
        found |= stored(child, outside)
    return found
