"""The rule of everything that has a state: what is read after each step is right, and what was saved goes on elsewhere to the bit.

    return resumed.compared(work, STEPS, case.saved, partial(_Trained, case), right, bounds)

The thing is made, and takes its steps. Before one of them its state is saved, without an end of the process. A second thing, with
other values and other automatic names, loads the file and takes the steps that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import paddle

from xpulab.chapters.shared.states import digests
from xpulab.checks.compared import Compared, Values

Read = Mapping[str, Any]
"""By name an array or a number that was read, or must be, after a step."""


class Stateful(Protocol):
    """step: takes a step, counted from 0, and returns what is read then. state: what is saved. restore: takes that over."""

    def step(self, number: int) -> Read: ...

    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...


def compared(
    work: Path,
    steps: int,
    saved: int,
    new: Callable[[bool], Stateful],
    right: Sequence[Read] = (),
    bounds: Sequence[Read] = (),
    wrong: Sequence[Read] = (),
    **save: Any,
) -> Compared:
    """What a case measures: `right` may name a part of what is read, or nothing.

    work: a folder. saved: before which step. new: makes the thing; given True, another one, which has to load. right, bounds,
    wrong: by step, as in Compared. save: options of paddle.save and paddle.load.
    """
    path = str(work / "state")
    thing, read = new(False), list[Read]()
    for number in range(steps):
        if number == saved:
            paddle.save(thing.state(), path, **save)
        read.append(thing.step(number))
    other = new(True)
    other.restore(paddle.load(path, **save))
    again = [other.step(number) for number in range(saved, steps)]
    exact, resumed = (
        {
            f"step {number} resumed, {name}": value
            for number, each in enumerate(reads, saved)
            for name, value in digests(each).items()
        }
        for reads in (read[saved:], again)
    )
    values, bound = _by_step(right), {**_by_step(bounds), **dict.fromkeys(exact, 0.5)}
    found = {name: value for name, value in _by_step(read).items() if name in values}
    control = {**_by_step(wrong), **{name: 255.0 - value for name, value in exact.items()}} if wrong else None
    return Compared({**found, **resumed}, {**values, **exact}, bound, control)


def _by_step(reads: Sequence[Read]) -> Values:
    return {f"step {number}, {name}": value for number, read in enumerate(reads) for name, value in read.items()}


def of_optimizer(optimizer: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimizer under the structured names of the weights: "NAME.moment1_0", "NAME.copy", and its schedule."""
    held = optimizer.state_dict()
    copies = held.pop("master_weights", {})
    named = {"LR_Scheduler": held.pop("LR_Scheduler")} if "LR_Scheduler" in held else {}
    for name, weight in weights.items():
        begin = f"{weight.name}_"
        named |= {f"{name}.{key.removeprefix(begin)}": value for key, value in held.items() if key.startswith(begin)}
        if weight.name in copies:
            named[f"{name}.copy"] = copies[weight.name]
    return named


def set_of_optimizer(optimizer: Any, weights: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Give an optimizer what `of_optimizer` returned of another one, whose weights may have other automatic names."""
    held: dict[str, Any] = {"LR_Scheduler": state["LR_Scheduler"]} if "LR_Scheduler" in state else {}
    copies = {}
    for name, weight in weights.items():
        for key, value in state.items():
            if key == f"{name}.copy":
                copies[weight.name] = value
            elif key.startswith(f"{name}."):
                held[f"{weight.name}_{key.removeprefix(f'{name}.')}"] = value
    optimizer.set_state_dict({**held, **({"master_weights": copies} if copies else {})})
