"""The bits with which a device adds up: in sums, and in products, whose long sums libraries may add in parts.

2^k + 1 - 2^k is 1 where the accumulator keeps k bits. A product with many terms and few results is often cut into parts along
its terms (split-K), and the parts are added in the type of the result. Each part is a sum in single precision, so this is no
defect where the library says so, but the bound of half types must know it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.kept_bits import LONG, SIDE, gradient
from xpulab.chapters.shared.precision import supported_types
from xpulab.checks.table import Table
from xpulab.reference.bounds import BITS, HALVES

Add = Callable[[paddle.Tensor], paddle.Tensor]

SUMS: dict[str, Add] = {
    "sum of a row": lambda terms: terms.sum(axis=1),
    "sum of a column": lambda terms: terms.T.sum(axis=0),
    "mean": lambda terms: terms.mean(axis=1) * terms.shape[1],
    "matmul": lambda terms: terms @ paddle.ones([terms.shape[1], SIDE], terms.dtype)[:, :1],
    "linear": lambda terms: F.linear(terms, paddle.ones([terms.shape[1], SIDE], terms.dtype))[:, 0],
    "gradient of an expanded row": lambda terms: gradient(
        lambda one: one.expand(terms.T.shape), paddle.zeros([1, terms.shape[0]], terms.dtype), terms.T
    ),
}
"""By name the sums: from terms [rows, terms] to the sums of the rows."""

PRODUCTS, LENGTHS = ("matmul", "linear"), (SIDE, LONG)
"""Those that a library for products computes; and the terms of the sums that are measured."""

LARGEST_POWER = {"float64": 51, "float32": 22, "bfloat16": 22, "float16": 14}
"""By type the largest k that is tried in a sum: the type holds 2^k, and single precision holds every partial sum."""


def bits_of_sum(add: Add, dtype: Any, length: int = SIDE) -> int:
    """How many bits the accumulator of a sum keeps: the largest k for which 2^j + 1 - 2^j is 1 for all j <= k.

    The terms are far apart in a row of `length` terms, all others are 0. At most LARGEST_POWER.
    """
    powers = np.arange(1, LARGEST_POWER[dtype] + 1)
    terms = np.zeros([len(powers), length])
    terms[:, 0], terms[:, length // 2], terms[:, -1] = 2.0**powers, 1.0, -(2.0**powers)
    right = add(paddle.to_tensor(terms).astype(dtype)).astype("float64").numpy().reshape(-1) == 1
    return int(powers[-1] if right.all() else powers[np.argmin(right)] - 1)


def least_bits(name: str, dtype: str, length: int, device: str) -> int:
    """The bits that a sum of SUMS must keep: LARGEST_POWER, but of long products in half types those of the type, on cards.

    Source: cuBLAS may add in the type of the result unless CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION is set, see
    cublasMath_t in NVIDIA's documentation of CUDA 12. Of the library of a Kunlun XPU nothing is documented. Not run on a card.
    """
    may_be_in_parts = name in PRODUCTS and dtype in HALVES and length > SIDE and device in ("gpu", "xpu")
    return BITS[dtype] if may_be_in_parts else LARGEST_POWER[dtype]


def add_rows(rows: Table, dtype: str, device: str, promised: Mapping[str, int]) -> None:
    """Add a row for each sum and length: its accumulator keeps what is promised. The control adds in parts of fewer bits.

    promised: by type the bits that a product keeps of its factors, where they are fewer than the type has.
    """
    for name, length in itertools.product(SUMS, LENGTHS):
        least = least_bits(name, dtype, length, device)
        if name in PRODUCTS:
            least = min(least, promised.get(dtype, least))
        coarse = partial(in_parts, bits=max(least - 3, 1))
        found, control = (bits_of_sum(add, dtype, length) for add in (SUMS[name], coarse))
        rows.above(f"{name} of {length} terms, {dtype}", found, least - 0.5, control=control)


@cache
def bits_of_parts(device: str) -> dict[str, int]:
    """By half type the bits with which the parts of long products are added, where they are fewer than single precision has.

    Measured on a GPU or XPU; {} elsewhere. Never fewer than least_bits() asks for: a bound must not grow with a defect.
    """
    halves = [dtype for dtype in supported_types(device) if dtype in HALVES and device in ("gpu", "xpu")]
    found = {dtype: min(bits_of_sum(SUMS[name], dtype, LONG) for name in PRODUCTS) for dtype in halves}
    return {dtype: max(bits, BITS[dtype]) for dtype, bits in found.items() if bits < LARGEST_POWER[dtype]}


def in_parts(terms: paddle.Tensor, bits: int, parts: int = 8) -> paddle.Tensor:
    """For a control: sums of the rows of terms [rows, terms], in parts whose sums are rounded and added with so many bits."""
    total: Any = 0.0
    for part in np.array_split(terms.astype("float64").numpy(), parts, axis=1):
        total = _rounded(total + _rounded(part.sum(axis=1), bits), bits)
    return paddle.to_tensor(total)


def _rounded(values: np.ndarray, bits: int) -> np.ndarray:
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(fraction * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent))
