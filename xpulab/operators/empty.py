"""Operators of a step on an empty batch: inputs without elements, results without elements, and gradients of zero.

Two recordings of the same step with two and three sequences show which sizes grow with the batch. Going on in the other
direction gives the sizes that belong to a batch of none, in shapes and attributes alike.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from xpulab import ranks
from xpulab.operators import differences
from xpulab.operators.calls import Call, TensorSpec
from xpulab.operators.inputs import NotReplayable, arrays_of
from xpulab.operators.replay import called, first_line, gradients_of

SMALL, LARGE = 2, 3
"""The sizes of the two batches."""


@dataclass(frozen=True)
class EmptyCase:
    """An operator on an empty batch.

    call: with at least one tensor without elements. shapes: of its results. gradients: of its inputs that have one.
    for_one_input: whether only one of several inputs wants a gradient, as the input of a model does not.
    """

    call: Call
    shapes: list[list[int]]
    gradients: list[list[int]]
    for_one_input: bool = False

    @property
    def expected(self) -> str:
        """What outcome() should give."""
        return _format(self.shapes, self.gradients, 0.0)

    @property
    def wrong(self) -> str:
        """The same for results and gradients of other shapes, as a control."""
        return _format([[*shape, 1] for shape in self.shapes], self.gradients[1:], 0.0)


def empty_cases(small: Iterable[Call], large: Iterable[Call]) -> list[EmptyCase]:
    """The operators of a batch of none. small, large: those of the same step with SMALL and LARGE sequences.

    Raises ValueError when the two are not the same operators.
    """
    pairs = list(zip(small, large, strict=True))
    if different := [one.name for one, other in pairs if one.name != other.name]:
        raise ValueError(f"two steps with different operators, first {different[0]}: record the same step twice")
    cases = {}
    for one, other in pairs:
        call = replace(one, arguments=_at_zero(one.arguments, other.arguments), named=_at_zero(one.named, other.named))
        specs = list(call.tensors())
        if not any(0 in spec.shape for spec in specs) or call.is_in_place:
            continue
        results = [_at_zero(a, b) for a, b in zip(one.results, other.results, strict=True) if a is not None]
        learning = bool(one.results and one.results[0] and one.results[0].wants_gradient)
        gradients = [list(spec.shape) for spec in specs if spec.wants_gradient and learning]
        case = EmptyCase(call, [list(spec.shape) for spec in results], gradients)
        for each in (case, *_of_one_input(case)):
            cases[repr(each.call)] = each
    return list(cases.values())


def outcomes(cases: Sequence[EmptyCase], device: str) -> list[str]:
    """What each operator gives, in a process of its own, since it may crash: see outcome(); or how the process ended.

    An operator that ended a process is not tried again.
    """
    found: dict[int, str] = {}
    with tempfile.TemporaryDirectory(prefix="xpulab-") as folder:
        while missing := [place for place in range(len(cases)) if place not in found]:
            log = Path(folder, f"{len(missing)}.jsonl")
            log.touch()
            try:
                ranks.run(_write_outcomes, 1, [(place, cases[place]) for place in missing], str(log), device=device)
                crash = ""
            except ranks.RanksFailed as failed:
                crash = f"its process ended: {failed.reports[0].reason}"
            found.update(json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
            if crash:
                last = next(place for place in missing if place not in found)
                ended = [place for place in missing if cases[place].call.operator == cases[last].call.operator]
                found.update({place: crash for place in ended if place not in found})
    return [found[place] for place in range(len(cases))]


def outcome(case: EmptyCase) -> str:
    """The shapes of the results, those of the gradients, and the largest absolute gradient; or the text of an error."""
    try:
        arrays = arrays_of(case.call, 0)
        attempt = called(case.call, arrays)
        shapes = [list(each.shape) for each in attempt.results]
        places = differences.differentiable(case.call, attempt.results) if case.gradients else []
        results = [attempt.results[place] for place in places]
        inputs = [place for place, spec in enumerate(case.call.tensors()) if spec.wants_gradient] if results else []
        types = [str(each.dtype).rsplit(".", maxsplit=1)[-1] for each in results]
        weights = [np.zeros(each.shape) for each in results]
        found = gradients_of(attempt, inputs, results, weights, types) if inputs else []
        largest = max((float(np.abs(each).max()) for each in found if each.size), default=0.0)
        return _format(shapes, [list(each.shape) for each in found], largest)
    except NotReplayable as problem:
        return str(problem)
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"


def by_operator(cases: Sequence[EmptyCase]) -> dict[str, list[int]]:
    """By operator the places of its cases. Apart are a reshape that copies a size, written as 0, and backward for one input."""
    found: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        apart = ", a size is copied" if _copies_a_size(case.call) else ", gradient of one input" if case.for_one_input else ""
        found.setdefault(case.call.operator + apart, []).append(place)
    return found


def _of_one_input(case: EmptyCase) -> list[EmptyCase]:
    """For an operator with several inputs that want a gradient, a case for each in which only that one does."""
    wanting = [place for place, spec in enumerate(case.call.tensors()) if spec.wants_gradient]
    if len(wanting) < 2 or not case.gradients:
        return []
    cases = []
    for only, shape in zip(wanting, case.gradients, strict=True):
        places = count()
        call = case.call.with_tensors(lambda spec: replace(spec, wants_gradient=next(places) == only))  # noqa: B023
        cases.append(EmptyCase(call, case.shapes, [shape], for_one_input=True))
    return cases


def _copies_a_size(call: Call) -> bool:
    """Whether a reshape asks with 0 for the size that its input has there."""
    if call.operator != "reshape" or len(call.arguments) < 2 or not isinstance(call.arguments[1], list):
        return False
    return any(size == 0 and there != 0 for size, there in zip(call.arguments[1], call.arguments[0].shape, strict=False))


def _format(shapes: list[list[int]], gradients: list[list[int]], largest: float) -> str:
    return f"results {shapes}, gradients {gradients}, the largest {largest:g}"


def _write_outcomes(cases: list[tuple[int, EmptyCase]], path: str) -> None:
    """Write place and outcome of each case, a line each, as soon as it is known."""
    with open(path, "w", encoding="utf-8") as log, paddle.amp.auto_cast(enable=False):
        for place, case in cases:
            log.write(json.dumps([place, outcome(case)]) + "\n")
            log.flush()


def _at_zero(small: Any, large: Any) -> Any:
    """The value that belongs to a batch of none, where the two belong to SMALL and LARGE."""
    if isinstance(small, TensorSpec):
        shape = _at_zero(small.shape, large.shape)
        values = None if small.values is None else _values(small.values, large.values, shape)
        return replace(small, shape=shape, values=values)
    if isinstance(small, tuple | list):
        return type(small)(_at_zero(one, other) for one, other in zip(small, large, strict=True))
    if isinstance(small, slice):
        return slice(*(_at_zero(getattr(small, part), getattr(large, part)) for part in ("start", "stop", "step")))
    if isinstance(small, int) and not isinstance(small, bool):
        return small - SMALL * (large - small) // (LARGE - SMALL)
    return small


def _values(small: np.ndarray, large: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if small.shape != large.shape:
        return np.zeros(shape, small.dtype)
    return small if small.dtype == bool else small - SMALL * (large - small) // (LARGE - SMALL)
