"""Compare gradients with central differences of the reference in double precision, along directions."""

from __future__ import annotations

from dataclasses import dataclass
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


def differentiable(call: Call, results: list[Any]) -> list[int]:
    """The places of the results that gradients are computed of."""
    chosen = tuple(range(len(results))) if call.operator in _ALL else _ONLY.get(call.operator, (0,))
    return [place for place in chosen if place < len(results) and not results[place].stop_gradient]


@dataclass(frozen=True)
class Slopes:
    """Slopes of the sum of upstream * results of the reference.

    arrays: the point. upstream: by the place of a result its weights.
    """

    reference: Any
    arrays: list[np.ndarray]
    upstream: dict[int, np.ndarray]

    def along(self, place: int, direction: np.ndarray) -> float:
        """The slope when the argument at this place moves in the direction."""
        array = self.arrays[place]
        step = _STEP * max(1e-3, float(np.abs(array).mean())) if array.size else _STEP
        return (self._sum(place, array + step * direction) - self._sum(place, array - step * direction)) / (2 * step)

    def scale_along(self, place: int, direction: np.ndarray, generator: np.random.Generator) -> float:
        """By how much the slope changes when every input and weight changes by its own size, in a random direction."""

        def moved(array: np.ndarray) -> np.ndarray:
            return array * (1 + _CHANGE * generator.choice([-1.0, 1.0], array.shape)) if array.dtype.kind == "f" else array

        weights = {key: moved(each) for key, each in self.upstream.items()}
        other = Slopes(self.reference, [moved(array) for array in self.arrays], weights)
        return abs(other.along(place, direction) - self.along(place, direction)) / _CHANGE

    def _sum(self, place: int, array: np.ndarray) -> float:
        given = [*self.arrays[:place], array, *self.arrays[place + 1 :]]
        results = self.reference.function(given)
        present = [each for each in results if each is not None]
        return float(sum((weights * present[key]).sum() for key, weights in self.upstream.items()))


def judge(
    slopes: Slopes, gradients: dict[int, np.ndarray], bits: float, generator: np.random.Generator, seconds: float
) -> tuple[float | None, float | None]:
    """The largest error / tolerance of these gradients, and of gradients that are wrong on purpose.

    gradients: by the place of the argument. seconds: how long the reference takes; a slow one gets one direction.
    """
    blocks = 1 if seconds > _SLOW_SECONDS else _BLOCKS
    errors, controls = [], []
    for place, gradient in gradients.items():
        if not np.isfinite(gradient).all():
            slope = slopes.along(place, np.ones(gradient.shape))
            return (WRONG, WRONG) if np.isfinite(slope) else (None, None)  # the reference has no finite gradient here either
        for direction in _directions(gradient, min(blocks, gradient.size), generator):
            error, control = _judge_direction(slopes, place, gradient, direction, bits, generator)
            errors.append(error)
            controls.append(control)
    return max(errors, default=None), min(controls, default=None)


def _directions(gradient: np.ndarray, blocks: int, generator: np.random.Generator) -> Any:
    """For each block of elements a direction in which the gradient grows: no term cancels another."""
    signs = np.where(gradient == 0, generator.choice([-1.0, 1.0], gradient.shape), np.sign(gradient))
    whole = (signs * generator.uniform(0.5, 1.5, gradient.shape)).reshape(-1)
    for part in np.array_split(np.arange(gradient.size), blocks):
        direction = np.zeros(gradient.size)
        direction[part] = whole[part]
        yield direction.reshape(gradient.shape)


def _judge_direction(
    slopes: Slopes, place: int, gradient: np.ndarray, direction: np.ndarray, bits: float, generator: np.random.Generator
) -> tuple[float, float]:
    slope, measured = slopes.along(place, direction), float((gradient * direction).sum())
    rounding = FACTOR * 2.0 ** -min(bits, FEWEST_BITS_OF_DIFFERENCES)
    limit = rounding * abs(measured) + _LEAST
    if abs(measured - slope) > limit:
        limit += rounding * max(slopes.scale_along(place, direction, generator) for _ in range(2))
    wrong = _WRONG_SHARE * measured if measured else float(np.square(direction).sum())
    return min(abs(measured - slope) / limit, WRONG), min(abs(wrong - slope) / limit, WRONG)
