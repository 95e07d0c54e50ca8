"""The rule of all that has a state: what is read after each step is right, and what was saved goes on elsewhere to the bit.

    return resumed.compared(work, case, STEPS, partial(_Trained, case), right, bounds)

The thing is made, and takes its steps. Before one of them its state is saved. A second thing, which begins with other values
and other automatic names, loads the files and takes the steps that are left. The case has an axis `saved`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import paddle

from xpulab.chapters.shared.states import digests
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case

Read = Mapping[str, Any]
"""By name an array or a number that was read, or must be, after a step."""

State = tuple[dict[str, Any], Any]
"""Tensors by name, and what is no tensor."""

MOMENTS = {"before the first step": 0, "after a step": 1, "late": 6}
"""By name before which step a thing is saved."""

FORMATS: dict[str, dict[str, Any]] = {"pickle": {}, "safetensors": {"safetensors": True}}
"""By name the options of paddle.save and paddle.load."""


class Stateful(Protocol):
    """step: takes a step, counted from 0, and returns what is read then. state: what is saved; restore takes it over."""

    def step(self, number: int) -> Read: ...

    def state(self) -> State: ...

    def restore(self, tensors: Mapping[str, Any], others: Any) -> None: ...


def compared(
    work: Path,
    case: Case,
    steps: int,
    new: Callable[[bool], Stateful],
    right: Sequence[Read] = (),
    bounds: Sequence[Read] = (),
) -> Compared:
    """What a case measures: against `right`, which may be a part of what is read, or nothing, and against the run itself.

    work: a folder. new: makes the thing; given True, the one that has to load. right, bounds: by step, as in Compared.
    """
    options = FORMATS[case.labels.get("format", "pickle")]
    thing, read, exact = new(False), list[Read](), list[Read]()
    for number in range(steps):
        if number == case.saved:
            tensors, others = thing.state()
            paddle.save(tensors, str(work / "tensors"), **options)
            paddle.save(others, str(work / "others"))
        read.append(thing.step(number))
        exact.append(digests(read[-1]))  # at once: the next step may change what was read
    other = new(True)
    other.restore(paddle.load(str(work / "tensors"), **options), paddle.load(str(work / "others")))
    again = [digests(other.step(number)) for number in range(case.saved, steps)]
    uninterrupted, resumed = _by_step(exact[case.saved :], "resumed, "), _by_step(again, "resumed, ")
    values, everything = _by_step(right), _by_step(read)
    found = {name: everything[name] for name in values if name in everything}
    bound = {**_by_step(bounds), **dict.fromkeys(uninterrupted, 0.5)}
    return Compared({**found, **resumed}, {**values, **uninterrupted}, bound)


def _by_step(reads: Sequence[Read], begin: str = "") -> dict[str, Any]:
    return {f"{begin}step {number}, {name}": value for number, read in enumerate(reads) for name, value in read.items()}


def of_optimizer(optimizer: Any, weights: Mapping[str, Any]) -> dict[str, Any]:
    """What an optimizer keeps of weights, under their structured names: "NAME.moment1_0", its float32 copy as "NAME.copy"."""
    held = optimizer.state_dict()
    copies, named = held.pop("master_weights", {}), dict[str, Any]()
    for name, weight in weights.items():
        begin = f"{weight.name}_"
        named |= {f"{name}.{key.removeprefix(begin)}": value for key, value in held.items() if key.startswith(begin)}
        named |= {f"{name}.copy": copies[weight.name]} if weight.name in copies else {}
    return named


def set_of_optimizer(optimizer: Any, weights: Mapping[str, Any], tensors: Mapping[str, Any], schedule: Any = None) -> None:
    """Give an optimizer what `of_optimizer` returned of another one, whose weights may have other automatic names.

    tensors: may hold others, too. schedule: the state of its schedule, or None.
    """
    held: dict[str, Any] = {"LR_Scheduler": schedule} if schedule is not None else {}
    copies = {}
    for (name, weight), (key, value) in itertools.product(weights.items(), tensors.items()):
        if key == f"{name}.copy":
            copies[weight.name] = value
        elif key.startswith(f"{name}."):
            held[f"{weight.name}_{key.removeprefix(f'{name}.')}"] = value
    optimizer.set_state_dict({**held, **({"master_weights": copies} if copies else {})})
