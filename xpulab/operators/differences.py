"""Compare gradients with central differences of the reference in double precision, along directions.

At a kink, as of ReLU, a difference is no slope: results that bend within the step get no weight, in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from xpulab.operators.calls import Call
from xpulab.operators.tolerances import WRONG

FACTOR = 16.0
"""How many roundings of its elements a gradient may be off, along a direction."""

FEWEST_BITS_OF_DIFFERENCES = 30
"""The bits to which a central difference in double precision is right."""

_ONLY = {"cross_entropy_with_softmax": (1,), "softmax_with_cross_entropy": (1,)}
"""Operators whose first result is no result for the caller."""
_ALL = ("split", "split_with_num", "unbind", "fused_rotary_position_embedding")
"""Operators whose results are all for the caller; of others the first one is."""

_BLOCKS, _STEP, _SLOW_SECONDS = 4, 1e-5, 0.05
_CHANGE, _WRONG_SHARE, _LEAST = 1e-3, 0.75, 1e-30
_BENT = 1e-3
"""The share of a step's change by which a result may leave the straight line; beyond it there is a kink, or a pole."""
_OF_MASKS = 1e18
_SAMPLE, _LEAST_OF_TYPICAL = 1 << 16, 0.1
_NOISE = 2.0**-50
"""The rounding of a result in double precision, with what led to it."""


def differentiable(call: Call, results: list[Any]) -> list[int]:
    """The places of the results that gradients are computed of."""
    chosen = tuple(range(len(results))) if call.operator in _ALL else _ONLY.get(call.operator, (0,))
    return [place for place in chosen if place < len(results) and not results[place].stop_gradient]


@dataclass(frozen=True)
class Line:
    """What the reference gives on a line through the point.

    place: of the argument that moves. direction: of its shape, for a step of 1. slopes: by the place of a result its change for
    such a step. is_bent: by the place of a result where that is no slope: at a kink, or where the reference is not finite.
    """

    place: int
    direction: np.ndarray
    slopes: dict[int, np.ndarray]
    is_bent: dict[int, np.ndarray]


@dataclass(frozen=True)
class Slopes:
    """Slopes of the sum of upstream * results of the reference.

    arrays: the point. upstream: by the place of a result its weights.
    """

    reference: Any
    arrays: list[np.ndarray]
    upstream: dict[int, np.ndarray]

    def line(self, place: int, direction: np.ndarray) -> Line:
        """Central differences when the argument at this place moves in the direction."""
        slopes, is_bent = {}, {}
        array = self.arrays[place]
        ahead, behind = (self._results(place, array + step * direction) for step in (_STEP, -_STEP))
        here = self._here
        with np.errstate(all="ignore"):
            for key in self.upstream:
                change = np.asarray(ahead[key] - behind[key], dtype="float64") / 2
                bend = np.abs(ahead[key] - 2 * here[key] + behind[key]) / 2
                size = np.abs(change)
                moving = size[np.isfinite(size) & (size > 0)]
                straight = bend <= _BENT * (size + (moving.mean() if moving.size else 0)) + _NOISE * np.abs(here[key])
                slopes[key], is_bent[key] = np.where(straight, change / _STEP, 0.0), ~straight
        return Line(place, direction, slopes, is_bent)

    def along(self, line: Line) -> float:
        """The slope on this line, of all results that are not bent."""
        return float(sum((weights * line.slopes[key]).sum() for key, weights in self.upstream.items()))

    def size(self) -> float:
        """The sum of upstream * results without signs: the slope of terms that cancel, for a step of their size."""
        sizes = [np.abs(weights * self._here[key]) for key, weights in self.upstream.items()]
        return float(sum(each[np.isfinite(each)].sum() for each in sizes))

    def scale_along(self, line: Line, generator: np.random.Generator) -> float:
        """By how much the slope changes when every input and weight changes by its own size, in a random direction."""

        def moved(array: np.ndarray) -> np.ndarray:
            return array * (1 + _CHANGE * generator.choice([-1.0, 1.0], array.shape)) if array.dtype.kind == "f" else array

        weights = {key: moved(each) for key, each in self.upstream.items()}
        other = Slopes(self.reference, [moved(array) for array in self.arrays], weights)
        return abs(other.along(other.line(line.place, line.direction)) - self.along(line)) / _CHANGE

    @cached_property
    def _here(self) -> list[np.ndarray]:
        return [each for each in self.reference.function(self.arrays) if each is not None]

    def _results(self, place: int, array: np.ndarray) -> list[np.ndarray]:
        given = [*self.arrays[:place], array, *self.arrays[place + 1 :]]
        return [each for each in self.reference.near(given, self.arrays) if each is not None]


def judge(
    point: Slopes,
    gradients_for: Callable[[dict[int, np.ndarray]], dict[int, np.ndarray]],
    bits: dict[int, float],
    generator: np.random.Generator,
    seconds: float,
) -> tuple[float | None, float | None]:
    """The largest error / tolerance of these gradients, and of gradients that are wrong on purpose.

    gradients_for: takes upstream, returns gradients by the place of the argument. bits: those of each, after long sums.
    seconds: how long the reference takes; a slow one gets one direction. Results at a kink count nowhere; both are None where
    all of them are, or where rounding may be as large as the gradient.
    """
    blocks = 1 if seconds > _SLOW_SECONDS else _BLOCKS
    gradients, lines, is_usable = gradients_for(point.upstream), [], {}
    for place, gradient in gradients.items():
        is_usable[place] = np.isfinite(gradient)
        sizes = _sizes(point.arrays[place])
        if not is_usable[place].all():
            line = point.line(place, np.where(is_usable[place], 0.0, sizes))
            if not any(each.any() for each in line.is_bent.values()):
                return WRONG, WRONG
            lines.append(line)
        usable = np.where(is_usable[place], gradient, 0.0)
        for direction in _directions(usable, sizes * is_usable[place], min(blocks, gradient.size), generator):
            lines.append(point.line(place, direction))
    bent = {key: np.any([line.is_bent[key] for line in lines], axis=0) for key in point.upstream if lines}
    straight = replace(point, upstream={key: np.where(where, 0.0, point.upstream[key]) for key, where in bent.items()})
    if not any(each.any() for each in straight.upstream.values()):
        return None, None
    gradients = gradients_for(straight.upstream)
    judged = [
        _judge_line(straight, line, np.where(is_usable[line.place], gradients[line.place], 0.0), bits[line.place], generator)
        for line in lines
        if (line.direction * is_usable[line.place]).any()
    ]
    told = [(error, control) for error, control in judged if error > 1 or control > 1]
    return max((error for error, _ in told), default=None), min((control for _, control in told), default=None)


def _sizes(array: np.ndarray) -> np.ndarray:
    """By element how far it may move: by its own size, or by a share of a typical one; masks do not move."""
    sample = np.abs(array.reshape(-1)[:: max(1, array.size // _SAMPLE)])
    sample = sample[np.isfinite(sample) & (sample > 0)]
    typical = min(1.0, float(np.median(sample))) if sample.size else 1.0
    sizes = np.maximum(np.abs(array), _LEAST_OF_TYPICAL * typical)
    return np.where(sizes < _OF_MASKS, sizes, 0.0)


def _directions(gradient: np.ndarray, sizes: np.ndarray, blocks: int, generator: np.random.Generator) -> Any:
    """For each block of elements a direction in which the gradient grows: no term cancels another."""
    signs = np.where(gradient == 0, generator.choice([-1.0, 1.0], gradient.shape), np.sign(gradient))
    whole = (signs * sizes * generator.uniform(0.5, 1.5, gradient.shape)).reshape(-1)
    for part in np.array_split(np.arange(gradient.size), blocks):
        direction = np.zeros(gradient.size)
        direction[part] = whole[part]
        yield direction.reshape(gradient.shape)


def _judge_line(
    point: Slopes, line: Line, gradient: np.ndarray, bits: float, generator: np.random.Generator
) -> tuple[float, float]:
    slope, measured = point.along(line), float((gradient * line.direction).sum())
    rounding = FACTOR * 2.0 ** -min(bits, FEWEST_BITS_OF_DIFFERENCES)
    limit = rounding * abs(measured) + _LEAST
    if abs(measured - slope) > limit:
        limit += max(rounding, _NOISE / _STEP) * point.size()
        limit += rounding * max(point.scale_along(line, generator) for _ in range(2))
    wrong = _WRONG_SHARE * measured if measured else float(np.square(line.direction).sum())
    return min(abs(measured - slope) / limit, WRONG), min(abs(wrong - slope) / limit, WRONG)
