"""How far the result of an operator may be from that in double precision: the same for chapter 17 and `xpulab shapes`.

    bound(right, terms * long_sum(length), dtype, kept)

terms: by element the sum of the absolute values of what is added or changed by rounding. Kernels for types of 16 bits compute
in single precision, and round results. rounding.py has the bounds of whole models.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

BITS = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
"""By floating type the bits of its fraction."""

HALVES = ("float16", "bfloat16")

LEAST = {"float16": 2.0**-24}
"""By type the smallest number above 0, where that is near to what operators compute with."""

LARGEST = {"float16": 65504.0 * (1 - 2.0**-10)}
"""By type beyond which number a result may be infinite, where operators reach it."""

_OF_SUMS = {"float64": 52}
"""By type the bits in which sums are accumulated, when not in single precision."""
_NOTHING = 1e-25
"""What is smaller counts as 0, as the exponentials of numbers far below the largest: float32 ends at 1e-38."""
_ROUNDINGS, _TERMS, _SHORT_SUM = 4, 8, 1024
"""How many roundings to the type a kernel may make one after another, by how much the rounded terms of a sum may add up, and
up to how many terms that holds."""


def bound(right: Any, terms: Any, dtype: str, kept: int | None = None, composed: bool = False) -> np.ndarray:
    """By element the absolute error that rounding may cause; of integers and bool 1/4, which is none.

    right: the exact results. kept: the bits that products keep of their factors, by default those of sums. composed: the
    operator is made of several, each of which rounds its result to the type, as gradients are.
    """
    if dtype not in BITS:
        return np.full(np.shape(right), 0.25)
    bits, least = kept or _OF_SUMS.get(dtype, BITS["float32"]), LEAST.get(dtype, _NOTHING)
    if dtype in HALVES and composed:  # each term is uncertain by the last bit of the type, near 0 too
        bits, least = min(kept or BITS["float64"], BITS[dtype] + 3), 8 * least
    return np.asarray(2.0 ** -BITS[dtype] * np.abs(right) + 2.0 ** (3 - bits) * np.asarray(terms) + least)


def long_sum(length: float) -> float:
    """By how much the error of a sum of so many terms may be larger than that of a short one: errors have random signs.

    Measured on the CPU: the mean of 512 positive numbers, added one after the other in float32, is off by 10 units.
    """
    return max(1.0, math.sqrt(length) / 4)


def share_of_largest(dtype: str, kept: int | None = None, length: int = 1, parts: int | None = None) -> float:
    """The error that rounding may cause in a sum of random terms of both signs, as a share of the largest result.

    kept: as for bound. length: of the sum, in terms. parts: the bits with which its parts are added, where they are fewer.
    """
    growth = max(1.0, (length / _SHORT_SUM) ** 0.5)
    if dtype == "float64":  # the formula is rounded as well
        return float(_ROUNDINGS * _TERMS * growth * 2.0 ** -BITS[dtype])
    of_roundings = _ROUNDINGS * (2.0 ** -BITS[dtype] + (2.0**-parts if parts else 0.0))
    return float(of_roundings + _TERMS * growth * 2.0 ** -(kept or BITS["float32"]))


def is_beyond(found: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Where the right number leaves the type, and the result is infinite, as it must be."""
    return (np.abs(right) > LARGEST.get(dtype, math.inf)) & (found == np.copysign(math.inf, right))


def fewer_bits(array: np.ndarray, dtype: str, kept: int | None = None) -> np.ndarray:
    """A control: the array with ten bits less in its fraction than the type, or `kept`, has, but at least three bits."""
    fraction, exponent = np.frexp(array)
    steps = 2.0 ** max(3, min(BITS[dtype], kept or BITS["float64"]) - 10)
    return np.asarray(np.ldexp(np.round(fraction * steps) / steps, exponent))
