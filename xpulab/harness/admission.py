"""When the next notebook may start: a fixed number at a time, or as many as processors and memory have room for.

A chapter that waits (for its ranks, for a time limit that it proves) does not compute: a core is free although its notebook
runs. Until the last check of a notebook that judges times has ended, no more notebooks run than there are cores. The numbers
were chosen with tools/benchmarks/schedule.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from xpulab.harness.chapter import code_cells
from xpulab.harness.machine import Reading
from xpulab.harness.plan import Plan
from xpulab.harness.sections import number_of

MOST_A_CORE = 2.0
"""So many notebooks a core at most. In the simulation 1.5 takes 4 % longer, 3 is as fast, and needs more memory."""

_ROOM = 0.1
"""So many cores must be free. In the simulation 0.5 takes 9 % longer; with none, notebooks would start on a busy machine."""

_RAMP_SECONDS = 1.0
"""A notebook that has just started does not show its load yet: until then it counts as a core of its own."""

_MEMORY_RAMP_SECONDS = 10.0
"""Nor does it have its memory yet."""

_MARGIN_BYTES = 1 << 30
"""What stays free for the system and for what grows more than expected."""


@dataclass(frozen=True)
class Running:
    """A notebook that runs, or would. began: when, by the clock of the decision. bytes: the most memory that it takes.

    judges_times: whether a check that judges times is still to come.
    """

    began: float
    bytes: int
    judges_times: bool = False


class Admission(Protocol):
    """Decides which notebook may start."""

    def next(self, now: float, running: Sequence[Running], waiting: Sequence[Running]) -> int | None:
        """The place of the first waiting one that may start now, None for none. Asked again and again. now: seconds."""

    def changed(self) -> None:
        """A notebook has started or ended."""


class AtATime:
    """A fixed number."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs

    def next(self, now: float, running: Sequence[Running], waiting: Sequence[Running]) -> int | None:
        return 0 if waiting and len(running) < self._jobs else None

    def changed(self) -> None:
        pass


class _Machine(Protocol):
    """xpulab.harness.machine.Machine, or what stands in for it."""

    def look(self) -> Reading: ...

    def forget(self) -> None: ...


class ByLoad:
    """As long as processors and memory have room; one always runs, whatever else the machine does."""

    def __init__(self, machine: _Machine) -> None:
        self._machine = machine

    def next(self, now: float, running: Sequence[Running], waiting: Sequence[Running]) -> int | None:
        seen = self._machine.look()
        if not waiting or not running:
            return 0 if waiting else None
        if not _has_free_core(seen, now, running) or len(running) >= math.ceil(seen.cores * MOST_A_CORE):
            return None
        a_core_each, timed = len(running) < _a_core_each(seen), any(each.judges_times for each in running)
        fitting = (
            place
            for place, each in enumerate(waiting)
            if (a_core_each or not (timed or each.judges_times)) and _has_memory(seen, now, running, each)
        )
        return next(fitting, None)

    def changed(self) -> None:
        self._machine.forget()


def _a_core_each(seen: Reading) -> int:
    return max(1, math.floor(seen.cores))


def _has_free_core(seen: Reading, now: float, running: Sequence[Running]) -> bool:
    if seen.busy is None:
        return len(running) < _a_core_each(seen)
    starting = sum(now - each.began < _RAMP_SECONDS for each in running)
    return seen.cores - seen.busy - starting >= _ROOM


def _has_memory(seen: Reading, now: float, running: Sequence[Running], more: Running) -> bool:
    coming = sum(each.bytes for each in running if now - each.began < _MEMORY_RAMP_SECONDS)
    return seen.available - coming - more.bytes >= _MARGIN_BYTES


def last_timed_cell(plan: Plan) -> int:
    """The last code cell, counted from 1 among those that run, of the sections that judge times; 0 when there is none."""
    timed = {index for section in plan.sections if section.judges_times for index in section.cells}
    numbers = {number for number, index in enumerate(code_cells(plan.chapter.notebook), start=1) if index in timed}
    numbered = enumerate((plan.notebook.cells[index] for index in code_cells(plan.notebook)), start=1)
    return max((number for number, cell in numbered if number_of(cell, number) in numbers), default=0)
