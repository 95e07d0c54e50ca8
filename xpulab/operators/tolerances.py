"""By how much the results of an operator may differ from those in double precision, and a control that must be outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xpulab.operators.calls import FLOATS
from xpulab.operators.reference import CPU, NUMPY
from xpulab.reference.bounds import BITS, bound, long_sum

_SHARE_OF_HALVES = 1 / 8
"""Where all inputs have 16 bits, a kernel computes in single precision, and only its results are rounded."""

WRONG = 1e12
"""The error / tolerance of what may not differ at all, or is not finite: infinity is no measurement."""

_FACTORS = {"positive": 1, "smooth": 2, "composed": 2, "rows": 2, "shares": 2}
"""By kind of formula how many operations in a row are rounded."""
_WITH_SUMS = ("positive", "rows", "shares")
_UNKNOWN = 4.0
"""For kernels without a formula: how often they round is unknown, and attributes are rounded in one type only."""
_DRAWS, _CHANGE, _LARGEST_TERM = 2, 1e-6, 100.0
_LARGEST = {"float16": 65504.0, "bfloat16": 3.38e38, "float32": 3.4e38}
"""By type beyond which number a result may be infinite."""


def bounds(
    reference: Any, arrays: list[np.ndarray], results: Sequence[Any], types: list[str], bits: int, source_bits: int, seed: int
) -> list[np.ndarray]:
    """For each compared result the tolerance by element.

    results: of the reference. types: of the operator's results. bits: those with which the operator computes.
    source_bits: those of its inputs; a result that is a copy of inputs is rounded only when its type has fewer.
    """
    expected = [np.asarray(each) for each in results if each is not None]
    if reference.kind == "exact":
        return [
            2.0 ** -BITS[dtype] * np.abs(want) if dtype in FLOATS and BITS[dtype] < source_bits else np.zeros(want.shape)
            for want, dtype in zip(expected, types, strict=True)
        ]
    unknown = 1.0 if reference.name == NUMPY else _UNKNOWN
    added = _SHARE_OF_HALVES if source_bits < BITS["float32"] else 1.0
    factor = unknown * added * _FACTORS[reference.kind] * rounded_sums(reference, arrays, expected, bits)
    scales = _scales(reference, arrays, expected, seed)
    return [
        bound(want, factor * scale, dtype, kept=bits) if dtype in FLOATS else np.zeros(want.shape)
        for want, scale, dtype in zip(expected, scales, types, strict=True)
    ]


def rounded_sums(reference: Any, arrays: list[np.ndarray], expected: list[np.ndarray], bits: int) -> float:
    """By how much the rounding of long sums adds up; not in types of 16 bits, whose kernels add in single precision."""
    if bits < BITS["float32"] or reference.kind not in _WITH_SUMS:
        return 1.0
    largest = max((array for array in arrays if array.dtype.kind == "f"), key=np.size, default=np.zeros(1))
    smallest = min((want.size for want in expected), default=1)
    return long_sum(max([array.shape[-1] for array in arrays if array.ndim] + [largest.size / max(1, smallest)], default=1))


def judge(values: list[np.ndarray], expected: list, limits: list[np.ndarray], types: list[str]) -> tuple[float, float]:
    """The largest error / tolerance of the values, of these types, and of values that are wrong on purpose."""
    errors = [
        ratio(value, np.asarray(want), limit, _LARGEST.get(dtype, np.inf))
        for value, want, limit, dtype in zip(values, expected, limits, types, strict=True)
    ]
    controls = [
        ratio(_wrong(np.asarray(want), limit), np.asarray(want), limit) for want, limit in zip(expected, limits, strict=True)
    ]
    return max(errors, default=0.0), max(controls, default=0.0)


def ratio(value: np.ndarray, want: np.ndarray, limit: np.ndarray, largest: float = np.inf) -> float:
    """The largest |value - want| / limit; WRONG where nothing may differ and something does. NaN must be at the same places.

    largest: the largest number of the type; beyond it the value is infinite.
    """
    if not want.size:
        return 0.0
    if want.dtype == bool or value.dtype == bool:
        return 0.0 if np.array_equal(value, want) else WRONG
    with np.errstate(all="ignore"):
        same = (
            (value == want)
            | (np.isnan(value) & np.isnan(want))
            | (np.isinf(value) & (np.abs(want) > largest) & (value * want > 0))
        )
        errors = np.where(same, 0.0, np.abs(value.astype("float64") - want) / limit)
    return float(np.where(np.isfinite(errors), np.minimum(errors, WRONG), WRONG).max())


def _scales(reference: Any, arrays: list[np.ndarray], expected: list[np.ndarray], seed: int) -> list[np.ndarray]:
    """By element the sum of how much results change when an input changes by its own size, in random directions."""
    reals = [place for place, array in enumerate(arrays) if array.dtype.kind == "f"]
    if reference.kind == "positive":
        changed = [np.abs(array) if place in reals else array for place, array in enumerate(arrays)]
        return [np.abs(np.asarray(each)) for each in reference.function(changed) if each is not None]
    generator = np.random.default_rng([seed, 2])
    scales = [np.abs(want).astype("float64") for want in expected]
    if reference.kind in ("composed", "rows"):
        for place in reals[:1]:
            terms = 1 + np.minimum(np.abs(arrays[place]), _LARGEST_TERM)
            most = terms.max(initial=0.0) if reference.name == NUMPY else 0.0
            scales = [scale + (terms if terms.shape == scale.shape else most) for scale in scales]
    if reference.name == CPU:  # of products and sums the absolute terms
        positive = [np.abs(array) if place in reals else array for place, array in enumerate(arrays)]
        sums = [np.abs(np.asarray(each)) for each in reference.near(positive, arrays) if each is not None]
        pairs = zip(scales, sums, strict=True)
        scales = [scale + np.where(np.isfinite(each), each, 0) if each.shape == scale.shape else scale for scale, each in pairs]
    for place in reals:
        changes = [np.zeros(want.shape) for want in expected]
        for _ in range(_DRAWS):
            signs = generator.choice([-1.0, 1.0], arrays[place].shape)
            changed = [*arrays[:place], arrays[place] * (1 + _CHANGE * signs), *arrays[place + 1 :]]
            others = [np.asarray(each) for each in reference.near(changed, arrays) if each is not None]
            for change, other, want in zip(changes, others, expected, strict=True):
                if want.dtype.kind == "f":
                    np.fmax(change, np.abs(other - want) / _CHANGE, out=change)
        for scale, change in zip(scales, changes, strict=True):
            scale += change
    return scales


def _wrong(want: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """The results in another order where that differs from them, else with another value."""
    if want.dtype == bool:
        return ~want
    reversed_order = want.reshape(-1)[::-1].reshape(want.shape)
    if ratio(reversed_order, want, limit) > 2:
        return reversed_order
    return np.asarray(want + np.maximum(np.abs(want) / 4, 1).astype(want.dtype))
