"""The parameters of a chapter are right, or its first cell says what is wrong: papermill only warns of an unknown one.

papermill writes the parameters that it is given into a cell of its own, below the one that sets the defaults. Both have run
when a chapter chooses its device, so their sources are in the history of the kernel.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.devices import DEVICES, MOST_CARDS
from xpulab.errors import InputError
from xpulab.records.record import LEVELS

_OF_EVERY_CHAPTER = ("device", "level", "cards", "seed")
_INJECTED = "# Parameters\n"
"""The first line of the cell that papermill adds."""
_NUMBERS = (int, float)


def check_parameters() -> None:
    """Raise InputError for a parameter that the chapter does not take, and for a value that does not fit.

    Nothing happens outside of a notebook, and in a notebook that does not set device, level, cards and seed.
    """
    from IPython import get_ipython

    shell = get_ipython()
    if shell is None or not all(name in shell.user_ns for name in _OF_EVERY_CHAPTER):
        return
    problems = [*_wrong_values(shell.user_ns), *_wrong_injected(shell.user_ns.get("In", []))]
    if problems:
        raise InputError("; ".join(problems))


def _wrong_values(given: Mapping[str, Any]) -> Iterator[str]:
    device, level, cards, seed = (given[name] for name in _OF_EVERY_CHAPTER)
    if device not in ("auto", *DEVICES):
        yield f"no device {device!r}: choose auto, {', '.join(DEVICES)}"
    if level not in LEVELS:
        yield f"no level {level!r}: choose {', '.join(LEVELS)}"
    if not _is_whole(cards) or not 1 <= cards <= MOST_CARDS:
        yield f"cards = {cards!r}: give a whole number from 1 to {MOST_CARDS}"
    if not _is_whole(seed) or seed < 0:
        yield f"seed = {seed!r}: give a whole number from 0 on"


def _wrong_injected(cells: Sequence[str]) -> Iterator[str]:
    """What is wrong in papermill's cell, compared with the cell of the defaults, which ran before it."""
    at = next((number for number, cell in enumerate(cells) if cell.startswith(_INJECTED)), 0)
    defaults = _assigned(cells[at - 1]) if at > 0 else {}
    if not defaults:
        return
    for name, value in _assigned(cells[at]).items():
        if name not in defaults:
            near = difflib.get_close_matches(name, defaults, 1)
            meant = f", {near[0]!r} was probably meant" if near else ""
            yield f"unknown parameter {name!r}{meant}: this notebook takes {', '.join(defaults)}"
        elif name not in _OF_EVERY_CHAPTER and not _fits(value, defaults[name]):
            yield f"{name} = {value!r}: give a value like the default, {defaults[name]!r}"


def _assigned(source: str) -> dict[str, Any]:
    """The names that a cell assigns literals to, with these."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id] = _literal(node.value)
    return found


def _literal(node: ast.expr) -> Any:
    """The value of a literal; None, which fits every value, for another expression."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _fits(value: Any, default: Any) -> bool:
    """Whether a value is of the default's type; a default of None is no type, and whole numbers are numbers."""
    if value is None or default is None:
        return True
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(default, bool)
    return isinstance(value, _NUMBERS if isinstance(default, _NUMBERS) else type(default))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
