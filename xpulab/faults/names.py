"""What the statements of a notebook do with names, read from their sources: use them, bind them, change what they stand for.

A statement may change the object behind a name when it calls a method of it, or passes it to a call, whose result nobody
takes; when it stores into it; or when it calls a function of the notebook whose body does so. What is known of libraries
stands in the tables below; for everything else the guess is that it does change what it can reach.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xpulab.records.planned import planned_checks

SETS_UP = "use_device"
"""The cell that calls it, and all cells before it, are always needed whole; what it returns does not change."""

_BUILTIN = frozenset(vars(builtins))

_SAYS_PATH = re.compile(r"path|folder|file|parent")
"""In the names of parameters."""

_ONLY_READ = re.compile(r"resume|from|load|dataset|token|collat|^args$|config")
"""In the names of keywords and parameters: what a function or a trainer takes under them it does not change."""

_ONLY_SHOW = frozenset({"check", "print", "display", "plt", "figures", "verdict"})
"""Calls on these change nothing that a later statement reads, nor do calls on what they return."""

_SHOW = frozenset({"rows", "axes", "panels", "figure", "fig"})
"""What such things are called as parameters and in loops."""

_TOUCH_NOTHING_ELSE = frozenset({"shutil", "json", "pickle", "safetensors", "gc", "time", "ranks"})
"""Modules whose functions change nothing but their arguments, and files."""

_WRITE = frozenset({"save", "save_file", "save_state_dict", "dump", "copytree", "copyfile", "rmtree", "step"})
"""Functions of modules that change nothing but files."""

_TAKE_IN = frozenset({"append", "extend", "update", "add", "insert", "put"})
"""Methods of containers, which change neither what they are given nor what was there before."""

_SET = frozenset({"set_value", "set_state_dict", "set_dict"})
"""Methods that change their object and not what they are given."""

_GIVE_SOMETHING_NEW = frozenset({"np", "math", "json", "Path", *vars(builtins)}) - {"zip", "enumerate", "iter", "dict", "list"}
"""What these return, or what their functions return, shares nothing with the arguments."""

_KEEP_FUNCTIONS = frozenset({"partial", "dict", "list", "tuple", "zip"})
"""What these return may call the functions that they are given."""

_GIVE_A_COPY = frozenset({"numpy", "copy", "tolist", "item", "astype", "clone", "tobytes", "format", "join"})
"""Methods whose result shares nothing with their object."""

_GIVE_A_CONSTANT = frozenset({"float", "int", "str", "len", "bool", "sum", "max", "min"})
"""Functions whose result no statement can change."""

_CHANGE_AND_ANSWER = frozenset(
    ("pop", "popitem", "setdefault", "get_nowait", "train", "evaluate", "predict", "step", "backward", "minimize")
) | {"load_state_dict", "set_state_dict", "register_hook", "register_forward_pre_hook", "register_forward_post_hook"}
"""Methods that change their object although their result may be used."""


@dataclass
class Unit:
    """A statement and what it does with names. A path counts as one: "folder/first part", "folder/*" when that varies.

    cell: its cell's number, counted from 0. source: its text. checks: those that it holds. calls: the plain names it calls.
    uses: names looked up before the statement itself binds them. binds: those that it may bind; surely: those that it binds
    whatever happens. changes: names whose objects it may change. behind: by a name that it binds or changes, the names that
    are looked up when that one is used: those in a function's body. lasting: it changes something for the whole process.
    """

    cell: int = 0
    source: str = ""
    checks: frozenset[str] = frozenset()
    calls: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    surely: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    behind: dict[str, set[str]] = field(default_factory=dict)
    lasting: bool = False

    def gives(self, name: str) -> bool:
        """Whether the name may stand for something else, or its object look otherwise, after this statement."""
        return (
            name in self.binds or name in self.changes or ("/" in name and any(_same_path(name, each) for each in self.changes))
        )


def _same_path(used: str, changed: str) -> bool:
    """Whether a path that is used may be one that is changed. One that varies is taken for others that vary."""
    (folder, _, mine), (other, _, theirs) = used.partition("/"), changed.partition("/")
    if folder != other or not theirs:
        return False
    if mine == theirs or theirs == "*":
        return True
    if mine == "*":
        return False
    if theirs.endswith("*") and mine.startswith(theirs[:-1]):
        return True
    return mine.endswith("*") and theirs.startswith(mine[:-1])


@dataclass(frozen=True)
class _Function:
    """A function of the notebook: its parameters, and the parameters, global names and paths that it may change."""

    parameters: tuple[str, ...]
    changes: frozenset[str]


class Notebook:
    """What is known of the names while the statements are read in their order.

    holds: by name the other names whose objects it may share. behind: as in Unit. functions, classes: of the notebook.
    imported: modules and what comes from them. paths: names of files and folders. shows: what only shows something.
    constant: what cannot change. displays: lists and dicts that are written out.
    """

    def __init__(self) -> None:
        self.holds: dict[str, set[str]] = {}
        self.behind: dict[str, set[str]] = {}
        self.functions: dict[str, _Function] = {}
        self.classes: set[str] = set()
        self.imported: set[str] = set()
        self.paths: set[str] = set()
        self.shows: set[str] = set(_ONLY_SHOW)
        self.constant: set[str] = set()
        self.displays: set[str] = set()

    def read(self, unit: Unit) -> Unit:
        """Fill in what the statement does."""
        unit.surely = _Reader(self, unit).block(ast.parse(unit.source).body, set())
        if "check." in unit.source:
            unit.checks = frozenset(check.name for check in planned_checks([unit.source], "this notebook"))
        return unit

    def inside(self, own: set[str]) -> Notebook:
        """What is known inside a function whose own names these are."""
        known = Notebook()
        known.holds = {name: set(held) for name, held in self.holds.items() if name not in own}
        known.behind = {name: set(behind) for name, behind in self.behind.items() if name not in own}
        known.functions = {name: each for name, each in self.functions.items() if name not in own}
        known.classes, known.imported = self.classes - own, self.imported - own
        known.shows, known.constant = (self.shows - own) | (own & _SHOW), self.constant - own
        known.displays = self.displays - own
        known.paths = (self.paths - own) | {name for name in own if _SAYS_PATH.search(name)}
        return known

    def forget(self, name: str) -> None:
        """The name is bound anew."""
        self.holds.pop(name, None)
        self.behind.pop(name, None)
        self.functions.pop(name, None)
        for kind in (self.classes, self.imported, self.paths, self.shows, self.constant, self.displays):
            kind.discard(name)

    def is_fixed(self, name: str) -> bool:
        """Whether its object is none that a statement changes."""
        if name in self.imported or name in self.functions or name in self.classes or name in self.constant:
            return True
        return name in self.shows or (name in _BUILTIN and name not in self.holds)


class _Reader:
    """Reads statements, in their order, into a Unit."""

    def __init__(self, notebook: Notebook, unit: Unit) -> None:
        self._known, self._unit = notebook, unit

    def block(self, statements: Iterable[ast.stmt], bound: set[str]) -> set[str]:
        """Read the statements; returns the names that are surely bound after them."""
        for statement in statements:
            bound = getattr(self, f"_{type(statement).__name__.lower()}", self._other)(statement, set(bound))
        return bound

    # ------------------------------------------------------------------------------------------------------- statements

    def _other(self, node: ast.stmt, bound: set[str]) -> set[str]:
        """A statement with blocks that may be skipped, or without any."""
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                self._load(part, bound)
            elif isinstance(part, ast.stmt):
                self.block([part], bound)
            elif isinstance(part, ast.match_case):
                names = {each.name for each in ast.walk(part.pattern) if isinstance(each, ast.MatchAs) and each.name}
                self._unit.binds |= names
                self.block(part.body, bound | names)
        return bound

    def _expr(self, node: ast.Expr, bound: set[str]) -> set[str]:
        self._load(node.value, bound)
        if isinstance(node.value, ast.Call):
            self._thrown_away(node.value)
        return bound | _walrus(node)

    def _assign(self, node: ast.Assign | ast.AnnAssign, bound: set[str]) -> set[str]:
        if node.value is None:
            return bound
        self._load(node.value, bound)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            bound = self._bind(target, bound, node.value)
        return bound | _walrus(node)

    _annassign = _assign

    def _augassign(self, node: ast.AugAssign, bound: set[str]) -> set[str]:
        """As a store into the object, since lists and dicts are changed in place."""
        self._load(node.value, bound)
        for name in _names(node.target):
            self._use(name, bound)
        if isinstance(node.target, ast.Name):
            self._unit.binds.add(node.target.id)
        self._store_into(node.target, node.value)
        return bound

    def _for(self, node: ast.For, bound: set[str]) -> set[str]:
        self._load(node.iter, bound)
        bound |= _walrus(node.iter)
        self.block(node.body, self._bind(node.target, bound, node.iter))
        self.block(node.orelse, bound)
        return bound

    def _while(self, node: ast.While, bound: set[str]) -> set[str]:
        self._load(node.test, bound)
        bound |= _walrus(node.test)
        self.block([*node.body, *node.orelse], bound)
        return bound

    def _if(self, node: ast.If, bound: set[str]) -> set[str]:
        self._load(node.test, bound)
        bound |= _walrus(node.test)
        return self.block(node.body, bound) & self.block(node.orelse, bound)

    def _with(self, node: ast.With, bound: set[str]) -> set[str]:
        for item in node.items:
            self._load(item.context_expr, bound)
            if item.optional_vars is not None:
                bound = self._bind(item.optional_vars, bound, item.context_expr)
        return self.block(node.body, bound)

    def _try(self, node: ast.Try, bound: set[str]) -> set[str]:
        after = self.block([*node.body, *node.orelse], bound)
        for handler in node.handlers:
            if handler.type is not None:
                self._load(handler.type, bound)
            names = {handler.name} - {None}
            self._unit.binds |= names
            mine = self.block(handler.body, bound | names)
            if not isinstance(handler.body[-1], ast.Raise | ast.Return | ast.Continue | ast.Break):
                after &= mine
        return after | self.block(node.finalbody, bound)

    _trystar = _try

    def _import(self, node: ast.Import | ast.ImportFrom, bound: set[str]) -> set[str]:
        names = {alias.asname or alias.name.split(".")[0] for alias in node.names}
        for name in names:
            self._known.forget(name)
        self._known.imported |= names
        self._known.shows |= names & _ONLY_SHOW
        self._unit.binds |= names
        return bound | names

    _importfrom = _import

    def _delete(self, node: ast.Delete, bound: set[str]) -> set[str]:
        for target in node.targets:
            for name in _names(target):
                self._use(name, bound)
            if isinstance(target, ast.Name):
                self._unit.binds.add(target.id)
            else:
                self._store_into(target)
        return bound

    def _functiondef(self, node: ast.FunctionDef, bound: set[str]) -> set[str]:
        for part in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self._load(part, bound)
        body = self._body(node)
        self._define(node.name, body.uses.union(*map(_names, node.decorator_list)))
        self._known.functions[node.name] = _Function(_parameters(node.args), frozenset(body.changes))
        return bound | {node.name}

    def _classdef(self, node: ast.ClassDef, bound: set[str]) -> set[str]:
        for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self._load(part, bound)
        inside = Unit()
        _Reader(self._known.inside(_stored(node.body)), inside).block(node.body, set())
        for name in inside.uses:
            self._use(name, bound)
        methods = {name for name in inside.binds if name in inside.behind}
        behind = inside.uses.union(*inside.behind.values(), *map(_names, node.bases)) - methods
        self._define(node.name, behind - {node.name})
        self._known.classes.add(node.name)
        return bound | {node.name}

    def _define(self, name: str, behind: set[str]) -> None:
        self._known.forget(name)
        self._unit.binds.add(name)
        self._unit.behind[name] = self._known.behind[name] = behind - {name}

    def _body(self, node: ast.FunctionDef | ast.Lambda) -> Unit:
        """What the body of a function does with names that are not its own."""
        statements = node.body if isinstance(node.body, list) else [ast.Return(node.body)]
        parameters = set(_parameters(node.args))
        own, inside = parameters | _stored(statements), Unit()
        _Reader(self._known.inside(own), inside).block(statements, set(own))
        inside.uses = {name for name in inside.uses.union(*inside.behind.values()) if _folder(name) not in own}
        changed = {_folder(name) if _folder(name) in parameters else name for name in inside.changes | (inside.binds - own)}
        inside.changes = {name for name in changed if name in parameters or _folder(name) not in own}
        inside.changes -= {name for name in parameters if _ONLY_READ.search(name)}
        return inside

    # ------------------------------------------------------------------------------------------------------ expressions

    def _load(self, node: ast.AST, bound: set[str]) -> None:
        """Note the names that an expression looks up, and what its calls may change."""
        if isinstance(node, ast.Name):
            self._use(node.id, bound)
        elif isinstance(node, ast.Lambda):
            for part in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self._load(part, bound)
            body = self._body(node)
            for name in body.uses:
                self._use(name, bound)
            self._change(body.changes - set(_parameters(node.args)))  # it is called sooner or later
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            inner = set(bound)
            for part in node.generators:
                self._load(part.iter, inner)
                inner |= _names(part.target)
                for condition in part.ifs:
                    self._load(condition, inner)
            for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                self._load(part, inner)
        elif isinstance(node, ast.NamedExpr):
            self._load(node.value, bound)
            self._bind_name(node.target.id, node.value)
        else:
            if isinstance(node, ast.Call):
                self._call(node)
            if path := self._path(node):
                self._use(path, bound)
            for part in ast.iter_child_nodes(node):
                self._load(part, bound)

    def _use(self, name: str, bound: set[str], seen: frozenset[str] = frozenset()) -> None:
        if _folder(name) not in bound:
            self._unit.uses.add(name)
        elif "/" in name:  # a folder that the statement itself names: what it stands for is in what it holds
            self._unit.uses |= {each for each in self._known.holds.get(_folder(name), ()) if "/" in each}
        if name in self._unit.binds and name not in seen:  # a function that the statement defines: it may run now
            for each in tuple(self._unit.behind.get(name, ())):
                self._use(each, bound, seen | {name})

    def _call(self, node: ast.Call) -> None:
        """What a call may change, whether its result is used or not."""
        if isinstance(node.func, ast.Name):
            self._unit.calls.add(node.func.id)
        if isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGE_AND_ANSWER:
            self._change(self._held(node.func.value))
        if ast.unparse(node.func) == "ranks.run":
            self._in_other_processes(node)
            return
        if isinstance(node.func, ast.Name) and node.func.id in self._known.functions:
            function = self._known.functions[node.func.id]
            self._change(function.changes - set(function.parameters))
            for parameter, argument in _matched(function.parameters, node.args, node.keywords):
                if parameter is None or parameter in function.changes:
                    self._change(self._held(argument) | self._paths_in(argument))
        for argument in _arguments(node):  # a function that is passed on may be called there
            if isinstance(argument, ast.Name) and argument.id in self._known.functions:
                function = self._known.functions[argument.id]
                self._change(function.changes - set(function.parameters))

    def _in_other_processes(self, node: ast.Call) -> None:
        """ranks.run(function, count, *arguments): what other processes leave behind is files."""
        function = self._known.functions.get(getattr(node.args[0], "id", "")) if node.args else None
        if function is None:
            self._change(set().union(*map(self._paths_in, node.args)))
            return
        self._change({name for name in function.changes - set(function.parameters) if "/" in name or name in self._known.paths})
        for parameter, argument in _matched(function.parameters, node.args[2:], ()):
            if parameter is None or parameter in function.changes:
                self._change(self._paths_in(argument))

    def _thrown_away(self, node: ast.Call) -> None:
        """What a call changes whose result nobody takes: it is made for its effect."""
        root, last = _root(node.func), node.func.attr if isinstance(node.func, ast.Attribute) else None
        if root in self._known.shows | _SHOW or root in self._known.functions or ast.unparse(node.func) == "ranks.run":
            return
        if last in _TAKE_IN and root is not None and not self._known.is_fixed(root):
            self._unit.changes.add(root)
            self._known.holds.setdefault(root, set()).update(set().union(*map(self._held, _arguments(node))) - {root})
            return
        if last in _SET and root not in self._known.imported:
            self._change(self._held(node.func.value))
            return
        of_module = root in self._known.imported or root == "get_ipython"
        if not (of_module and last in _WRITE):
            self._change(set().union(*map(self._held, self._given_to(node))))
        self._change(set().union(*map(self._paths_in, self._given_to(node))))
        if of_module:
            self._unit.lasting |= root not in _TOUCH_NOTHING_ELSE and last not in _WRITE
        elif last:
            self._change(self._held(node.func.value) | self._paths_in(node.func.value))

    def _given_to(self, node: ast.Call) -> list[ast.expr]:
        """The arguments that a call may change, or that are files which it may write."""
        last = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if last.startswith("copy"):
            return list(node.args[1:])
        candidates = self._known.behind.get(_root(node.func) or "", set()) & self._known.functions.keys()
        if candidates and not node.keywords:  # one of a table of functions
            functions = [self._known.functions[name] for name in candidates]
            return [
                argument
                for each in functions
                for parameter, argument in _matched(each.parameters, node.args, ())
                if parameter is None or parameter in each.changes
            ]
        named = [keyword.value for keyword in node.keywords if keyword.arg and not _ONLY_READ.search(keyword.arg)]
        given = [*node.args, *named]
        return [each for each in given if not self._paths_in(each)] if last.startswith(("load", "step")) else given

    def _change(self, names: Iterable[str]) -> None:
        """Note that these objects may change, and whatever they hold."""
        open_ends, seen = set(names), set()
        while open_ends:
            seen.add(name := open_ends.pop())
            if not self._known.is_fixed(name):
                self._unit.changes.add(name)
                open_ends |= self._known.holds.get(name, set()) - seen

    def _bind(self, target: ast.AST, bound: set[str], value: ast.expr) -> set[str]:
        """Bind a target to (a part of) a value; returns what is bound then."""
        if isinstance(target, ast.Attribute | ast.Subscript):
            for name in _names(target):
                self._use(name, bound)
            self._store_into(target, value)
            return bound
        if isinstance(target, ast.Starred):
            return self._bind(target.value, bound, value)
        if isinstance(target, ast.Tuple | ast.List):
            alike = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for index, part in enumerate(target.elts):
                bound = self._bind(part, bound, value.elts[index] if alike else value)
            return bound
        self._bind_name(target.id, value)
        return bound | {target.id}

    def _bind_name(self, name: str, value: ast.expr) -> None:
        known = self._known
        held, behind = self._held(value) | self._paths_in(value), self._passed_on(value)
        is_path = bool(self._paths_in(value)) or not _names(value).isdisjoint(("Path", "tempfile"))
        only_shows = not isinstance(value, ast.Name) and _root(value) in known.shows
        constant = self._is_constant(value) or (isinstance(value, ast.Call) and _root(value.func) == SETS_UP)
        known.forget(name)
        known.holds[name] = held - {name}
        known.behind[name] = self._unit.behind[name] = behind - {name}
        self._unit.binds.add(name)
        display = isinstance(value, ast.Dict | ast.List | ast.DictComp | ast.ListComp)
        of_kinds = ((known.paths, is_path), (known.shows, only_shows), (known.constant, constant), (known.displays, display))
        for kind, applies in of_kinds:
            if applies:
                kind.add(name)

    def _store_into(self, target: ast.expr, value: ast.expr | None = None) -> None:
        """`target = value` where the target is part of an object."""
        root = _root(target)
        if root in self._known.imported:
            self._unit.lasting = True
        if root is None:
            self._change(self._held(target))
            return
        part = target.value if isinstance(target, ast.Subscript) else target
        if root not in self._known.displays or not isinstance(part, ast.Name):
            self._change({root})  # and what it holds; an element of a list can be exchanged without
        self._unit.changes.add(root)
        if value is not None:
            behind = self._passed_on(value) - {root}
            self._unit.behind.setdefault(root, set()).update(behind)
            self._known.behind.setdefault(root, set()).update(behind)
            self._known.holds.setdefault(root, set()).update(self._held(value) - {root})

    # ------------------------------------------------------------------------------------------------- what a value holds

    def _held(self, node: ast.AST) -> set[str]:
        """The names whose objects the value of an expression may share."""
        if isinstance(node, ast.Name):
            return {node.id}
        if isinstance(node, ast.Attribute | ast.Subscript):
            return self._held(node.value)
        if isinstance(node, ast.Call):
            if _root(node.func) in _GIVE_SOMETHING_NEW or (
                isinstance(node.func, ast.Attribute) and node.func.attr in _GIVE_A_COPY
            ):
                return set()
            receiver = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            given = [*node.args, *(each.value for each in node.keywords if each.arg and not _ONLY_READ.search(each.arg))]
            return self._held(receiver).union(*map(self._held, given))
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            own = set().union(*(_names(part.target) for part in node.generators))
            inside = self._held(node.value if isinstance(node, ast.DictComp) else node.elt)
            return (inside - own).union(*(self._held(part.iter) for part in node.generators if inside & own))
        if isinstance(node, ast.Lambda):
            return self._body(node).uses
        if isinstance(node, ast.Compare | ast.JoinedStr | ast.Constant) or self._path(node):
            return set()
        return set().union(*map(self._held, ast.iter_child_nodes(node)))

    def _path(self, node: ast.AST) -> str | None:
        """The name of a path like `folder / part / ...`: "folder/part", None when the expression is none."""
        first = None
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            first, node = node.right, node.left
        if first is None or not isinstance(node, ast.Name) or node.id not in self._known.paths:
            return None
        if isinstance(first, ast.JoinedStr) and isinstance(first.values[0], ast.Constant):
            return f"{node.id}/{first.values[0].value}*"
        return f"{node.id}/{first.value if isinstance(first, ast.Constant) else '*'}"

    def _paths_in(self, node: ast.AST) -> set[str]:
        """The paths that an expression mentions."""
        if path := self._path(node):
            return {path}
        if isinstance(node, ast.Name):
            return {node.id} & self._known.paths
        return set().union(*map(self._paths_in, ast.iter_child_nodes(node)))

    def _passed_on(self, node: ast.AST) -> set[str]:
        """The names that may be looked up when an expression's value is used: functions in it, but not those that it calls."""
        if isinstance(node, ast.Name):
            return {node.id} if self._known.behind.get(node.id) else set()
        if isinstance(node, ast.Lambda):
            return self._body(node).uses
        if isinstance(node, ast.Call):
            return set().union(*map(self._passed_on, _arguments(node))) if _root(node.func) in _KEEP_FUNCTIONS else set()
        own = set().union(*(_names(part.target) for part in getattr(node, "generators", ())))
        return set().union(*map(self._passed_on, ast.iter_child_nodes(node))) - own

    def _is_constant(self, node: ast.AST) -> bool:
        """Whether the value is a number, a text, or a tuple of these, that no statement can change."""
        if isinstance(node, ast.Name):
            return node.id in self._known.constant
        if isinstance(node, ast.Subscript):
            return isinstance(node.value, ast.Dict) and all(map(self._is_constant, node.value.values))
        if isinstance(node, ast.Constant | ast.JoinedStr | ast.Compare):
            return True
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in _GIVE_A_CONSTANT
        parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
        simple = isinstance(node, ast.Tuple | ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.IfExp)
        return simple and all(map(self._is_constant, parts))


# ---------------------------------------------------------------------------------------------------------------- the tree


def _names(node: ast.AST) -> set[str]:
    """All names that stand in an expression or target."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _folder(name: str) -> str:
    """The name itself, or of a path the name that it begins with."""
    return name.split("/")[0]


def _root(node: ast.AST) -> str | None:
    """The name that an expression like `a.b[c].d` begins with; None when it begins otherwise."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _walrus(node: ast.AST) -> set[str]:
    return {each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr)}


def _arguments(node: ast.Call) -> list[ast.expr]:
    """Its arguments; of `**options` the callee gets a copy."""
    return [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg)]


def _parameters(arguments: ast.arguments) -> tuple[str, ...]:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return tuple(each.arg for each in (*named, *filter(None, (arguments.vararg, arguments.kwarg))))


def _matched(
    parameters: Sequence[str], given: Sequence[ast.expr], keywords: Iterable[ast.keyword]
) -> Iterator[tuple[str | None, ast.expr]]:
    """Each argument of a call with the parameter that it is for; None when that cannot be told."""
    plain = not any(isinstance(each, ast.Starred) for each in given)
    for index, argument in enumerate(given):
        yield (parameters[index] if plain and index < len(parameters) else None), argument
    for keyword in keywords:
        if keyword.arg:
            yield (keyword.arg if keyword.arg in parameters else None), keyword.value


def _stored(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that a function's statements make its own, without those of functions inside."""
    found: set[str] = set()
    outside: set[str] = set()
    open_ends: list[ast.AST] = list(statements)
    while open_ends:
        node = open_ends.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            found |= _walrus(node)
        else:
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                found.add(node.id)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                found |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
                found.add(node.name)
            elif isinstance(node, ast.Global | ast.Nonlocal):
                outside |= set(node.names)
            open_ends += ast.iter_child_nodes(node)
    return found - outside
