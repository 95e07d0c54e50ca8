"""Which statements of a notebook a check depends on: a slice backwards over names, read from the sources.

A statement is needed when it holds a wanted check, when it binds a name that a needed statement uses, when it may change
the object behind such a name, or when it changes something for the whole process (`paddle.seed(0)`, `module.name = ...`);
xpulab.faults.names says which does what. Files are followed through the expression that leads to them, `folder / "first
part"`, and no further. In doubt a statement is kept. Whether a slice is whole is shown by running it without a fault:
`xpulab selftest --control`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from IPython.core.inputtransformer2 import TransformerManager

from xpulab.faults.names import SETS_UP, Notebook, Unit


@dataclass(frozen=True)
class Slice:
    """What is left of a notebook.

    sources: those of its code cells, each with the needed statements only; "" where none is needed.
    cut: the names that what was left out would bind.
    """

    sources: tuple[str, ...]
    cut: frozenset[str]


@lru_cache(maxsize=256)
def sliced(cells: tuple[str, ...], checks: frozenset[str]) -> Slice:
    """The part of a notebook, given as the sources of its code cells, that these checks depend on.

    The first cell, which holds the parameters, is always needed. Raises ValueError for a check that no cell holds.
    """
    units = _read(cells)
    if unknown := sorted(checks - set().union(*(unit.checks for unit in units))):
        raise ValueError(f"no cell holds {', '.join(unknown)}")
    wanted = {number for number, unit in enumerate(units) if unit.checks & checks}
    set_up = max((unit.cell for unit in units if SETS_UP in unit.calls), default=0)
    always = {n for n, unit in enumerate(units) if unit.cell <= set_up or (unit.lasting and n < max(wanted, default=0))}
    needed = _Way(units).back_from(wanted | always)
    kept = [unit for number, unit in enumerate(units) if number in needed]
    sources = ("\n".join(unit.source for unit in kept if unit.cell == cell) for cell in range(len(cells)))
    cut = set().union(*(unit.binds for number, unit in enumerate(units) if number not in needed))
    return Slice(tuple(sources), frozenset(cut))


@lru_cache(maxsize=16)
def _read(cells: tuple[str, ...]) -> tuple[Unit, ...]:
    """The statements of all cells, in their order."""
    notebook = Notebook()
    return tuple(notebook.read(unit) for number, cell in enumerate(cells) for unit in _units(number, cell))


def _units(number: int, source: str) -> Iterator[Unit]:
    """The statements of a cell at its left margin; those that share a line are one."""
    text = TransformerManager().transform_cell(source)
    lines = text.splitlines()
    groups: list[list[ast.stmt]] = []
    for node in ast.parse(text).body:
        if groups and _first_line(node) <= (groups[-1][-1].end_lineno or 0):
            groups[-1].append(node)
        else:
            groups.append([node])
    for group in groups:
        yield Unit(number, "\n".join(lines[_first_line(group[0]) - 1 : group[-1].end_lineno]))


def _first_line(node: ast.stmt) -> int:
    """Where a statement begins, its decorators included."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


class _Way:
    """The way back from statements to all that they need."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._looked_up: set[tuple[str, int]] = set()

    def back_from(self, wanted: Iterable[int]) -> set[int]:
        """The numbers of the wanted statements and of all that they need."""
        needed: set[int] = set()
        open_ends = set(wanted)
        while open_ends:
            needed.add(number := open_ends.pop())
            for name in self._units[number].uses:
                open_ends |= self._givers(name, number, number - 1) - needed
        return needed

    def _givers(self, name: str, user: int, last: int) -> set[int]:
        """The statements up to `last` that make `name` what it is for the statement `user`, with all that waits behind it."""
        if (name, user) in self._looked_up:
            return set()
        self._looked_up.add((name, user))
        found: set[int] = set()
        for number in range(last, -1, -1):
            unit = self._units[number]
            if unit.gives(name):
                found.add(number)
                for each in unit.behind.get(name, ()):
                    found |= self._givers(each, user, user)
            if name in unit.surely and number < user:
                break
        return found
