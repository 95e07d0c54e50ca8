"""What a fault is: what it replaces, what stands there instead, and the checks that must detect it.

    @fault("lora.merge", wraps="paddlenlp.peft.lora.lora_layers:LoRALinear.get_delta_weight")
    def merge_without_scale(real, self, *given):
        \"""Merging adds the adapter without its scale.\"""
        return real(self, *given) / self.scaling

It is injected into the process of the notebook before its first cell, or into every rank that the notebook starts. paddle,
dist and np are imported when a fault first uses them: a process that has none imports nothing for it.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from xpulab import files

Injection = Callable[[], None]


class _WhenUsed:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)

    def __reduce__(self) -> tuple[type, tuple[str]]:  # a fault travels as a pickle, with the names that it uses
        return _WhenUsed, (self._name,)


paddle: Any = _WhenUsed("paddle")
dist: Any = _WhenUsed("paddle.distributed")
np: Any = _WhenUsed("numpy")

calls = itertools.count(1)
kept: list[Any] = []
"""What a fault remembers from call to call: their number, next(calls), and values. Every process has a fault's own ones."""

CELLS = "cells"
FILES = "files"
MACHINE = "machine"
DEVICE = "device"
WITHOUT_A_NAME = (CELLS, FILES, MACHINE, DEVICE)
"""What a fault breaks that is no attribute: the code of the notebook's cells, the book's own files, what the doctor reads of a
machine (packages, variables, tools, folders of the kernel), a simulated card."""


@dataclass(frozen=True)
class Fault:
    """A way in which training really goes wrong.

    name: unique in the catalogue, the function's name with hyphens.
    what: one sentence for the reader of a table, the first line of the function's docstring.
    notebook: the name of the notebook that must detect it, that of its room: "03_lora", "release/trainer".
    lanes: where it is tried, of "cpu" and "sim"; empty for one that is not run.
    detected_by: the names of the checks that must turn red; others may.
    inject: breaks the process that calls it. Raises LookupError when there is nothing of a name that it replaces.
    breaks: what it replaces, each "module:attribute" or one of WITHOUT_A_NAME.
    sim_faults: faults of the simulated cards, in the grammar of xpulab.sim.faults; "" for none.
    level: the level at which detected_by must turn red: "quick", or "standard" for checks that run only there.
    smoke: the names of the checks that must turn red at level smoke; empty where it is not tried at that level.
    not_run: why it is not tried: its checks compare on real cards only, or only with a baseline; "" for one that is tried.
    """

    name: str
    what: str
    notebook: str
    lanes: tuple[str, ...]
    detected_by: tuple[str, ...]
    inject: Injection
    breaks: tuple[str, ...] = ()
    sim_faults: str = ""
    level: str = "quick"
    smoke: tuple[str, ...] = ()
    not_run: str = ""

    @property
    def device(self) -> str:
        """The first of its lanes, on which level smoke must detect it; "cpu" for one that is not run."""
        return next(iter(self.lanes), "cpu")


def fault(
    *detected_by: str,
    wraps: str | tuple[str, ...] = (),
    after: str | tuple[str, ...] = (),
    replaces: str | tuple[str, ...] = (),
    breaks: str | tuple[str, ...] = (),
    lanes: tuple[str, ...] = ("cpu",),
    where: Literal["notebook", "ranks", "everywhere"] = "notebook",
    sim_faults: str = "",
    level: Literal["quick", "standard"] = "quick",
    smoke: tuple[str, ...] = (),
    not_run: str = "",
) -> Callable[[Callable[..., Any]], Fault]:
    """Make a Fault of the decorated function; where: the processes that it runs in. The rest is as in Fault, the checks first.

    One of these says what the fault replaces, in the form "module:attribute" or "module:Class.attribute":
    wraps: the function is called instead of it, with the original before the arguments of the call.
    after: the function is called when it has returned, with its result before the arguments of the call. What the function
        returns is the result instead, unless it is None.
    replaces: the function is called once, with the original, and returns what takes its place.
    breaks: the function takes no argument and breaks it itself; afterwards something else must stand there.
        Also one of WITHOUT_A_NAME.
    Several names are replaced one after another, each with its own original. With sim_faults none is needed.
    """
    forms: dict[str, tuple[str, ...]] = {
        form: (names,) if isinstance(names, str) else names
        for form, names in {"wraps": wraps, "after": after, "replaces": replaces, "breaks": breaks}.items()
        if names
    }

    def from_function(function: Callable[..., Any]) -> Fault:
        what = (inspect.getdoc(function) or "").partition("\n")[0]
        if not what:
            raise ValueError(f"the fault {function.__name__} needs a docstring: one sentence that says what breaks")
        if len(forms) > 1 or not (forms or sim_faults):
            raise ValueError(f"the fault {function.__name__} needs one of {', '.join(_FORMS)}, or sim_faults")
        form, names = next(iter(forms.items()), ("breaks", ()))
        here = functools.partial(_FORMS[form], names, function)
        in_ranks = functools.partial(in_every_rank, here, () if breaks else names)
        everywhere = functools.partial(_call_all, (here, in_ranks))
        return Fault(
            name=function.__name__.replace("_", "-"),
            what=what,
            notebook=_notebook_of(function.__module__),
            lanes=() if not_run else lanes,
            detected_by=detected_by,
            inject={"notebook": here, "ranks": in_ranks, "everywhere": everywhere}[where],
            breaks=names + ((DEVICE,) if sim_faults else ()),
            sim_faults=sim_faults,
            level=level,
            smoke=smoke,
            not_run=not_run,
        )

    return from_function


@functools.cache
def _notebook_of(module: str) -> str:
    """The notebook of the room that a module is in: "03_lora" for "xpulab.chapters.lora.faults", "release/trainer" for
    "xpulab.release.trainer.faults"; "" elsewhere.
    """
    if module.startswith("xpulab.release."):
        return f"{files.RELEASE}/{module.split('.')[2]}"
    if not module.startswith("xpulab.chapters."):
        return ""
    room = module.removeprefix("xpulab.chapters.").partition(".")[0]
    try:
        return files.chapters()[room]
    except KeyError:
        raise LookupError(f"{module}: there is no notebook NUMBER_{room} that could detect its faults") from None


def original(name: str) -> Any:
    """What stands at "module:attribute" or "module:Class.attribute"; of a class as it is stored, a staticmethod for example.

    Raises LookupError when there is nothing of this name.
    """
    owner, attribute = _owner(name)
    try:
        return inspect.getattr_static(owner, attribute) if inspect.isclass(owner) else getattr(owner, attribute)
    except AttributeError:
        raise LookupError(f"{name}: there is no such attribute in the installed version") from None


def _owner(name: str) -> tuple[Any, str]:
    """The module or class that holds the attribute of this name, and the last part of the name."""
    module, _, path = name.partition(":")
    *owners, attribute = path.split(".")
    try:
        owner = importlib.import_module(module)
        for each in owners:
            owner = getattr(owner, each)
    except (ImportError, AttributeError) as error:
        raise LookupError(f"{name}: {error}") from None
    return owner, attribute


def wrap(name: str, function: Callable[..., Any]) -> None:
    """What wraps= does, for a fault that breaks several names in different ways."""
    _wrap((name,), function)


def _call_all(functions: tuple[Injection, ...]) -> None:
    for function in functions:
        function()


def _replace(names: tuple[str, ...], change: Callable[[Any], Any]) -> None:
    """Put change(original) in the place of each name; a static or class method stays one."""
    for name in names:
        stored = original(name)
        kind = type(stored) if isinstance(stored, (staticmethod, classmethod)) else None
        changed = change(stored.__func__ if kind else stored)
        setattr(*_owner(name), kind(changed) if kind else changed)


def _wrap(names: tuple[str, ...], function: Callable[..., Any]) -> None:
    def wrapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*given: Any, **named: Any) -> Any:
            return function(real, *given, **named)

        return wrapper if inspect.isclass(real) else functools.wraps(real)(wrapper)

    _replace(names, wrapped)


def _follow(names: tuple[str, ...], function: Callable[..., Any]) -> None:
    def real_then_function(real: Callable[..., Any], *given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        changed = function(result, *given, **named)
        return result if changed is None else changed

    _wrap(names, real_then_function)


def _break(names: tuple[str, ...], function: Injection) -> None:
    """Call the function, which must put something else in the place of each name."""
    before = {name: original(name) for name in names if name not in WITHOUT_A_NAME}
    function()
    for name, stored in before.items():
        if original(name) is stored:
            raise LookupError(f"{name}: the fault has left it as it was")


_FORMS: dict[str, Callable[..., None]] = {"wraps": _wrap, "after": _follow, "replaces": _replace, "breaks": _break}
"""By the argument of `fault` what it does with the names and the fault's function."""


def in_every_rank(function: Injection, attributes: tuple[str, ...] = ()) -> None:
    """Call `function` in every rank that this process starts from now on, before the rank's own function.

    attributes: the names that it replaces. Raises LookupError now when there is nothing of one: a rank would only end.
    """
    from xpulab import ranks

    for name in attributes:
        original(name)
    run = ranks.run

    def run_with_fault(work, n, *arguments, **options):
        def in_a_rank(*given):
            function()
            return work(*given)

        return run(in_a_rank, n, *arguments, **options)

    ranks.run = run_with_fault


def replace_in_cells(old: str, new: str) -> None:
    """Run every cell of the notebook with the text `old` replaced by `new`: for faults in code that a cell defines."""
    from IPython import get_ipython

    get_ipython().input_transformers_cleanup.append(lambda lines: "".join(lines).replace(old, new).splitlines(keepends=True))


def replace_in_file(path: str, old: str, new: str) -> None:
    """Read one of the book's files, "data/...", with the text `old` replaced by `new`; the file stays as it is.

    Raises LookupError when the file does not contain `old`.
    """
    read, changed = Path.read_text, files.DATA.joinpath(*Path(path).parts[1:])
    if old not in read(changed, encoding="utf-8"):
        raise LookupError(f"{path}: it does not contain {old!r}")

    def read_text(self: Path, *given: Any, **named: Any) -> str:
        text = read(self, *given, **named)
        return text.replace(old, new) if self == changed else text

    setattr(Path, "read_text", read_text)  # noqa: B010 - an assignment to a method


def list_simulated_cards(numbers: str) -> None:
    """From now on data/hardware.yaml has a sheet of the simulated cards with this line, for this process alone."""
    sheet = f"- card: a simulated card\n  models: [simulated]\n  {numbers}\n  source: this fault alone\n\n"
    replace_in_file("data/hardware.yaml", "- card: Kunlun P800", f"{sheet}- card: Kunlun P800")
