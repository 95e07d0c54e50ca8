"""The bits that operators really keep of their factors and sums, found from inputs that were designed for it.

The number 1 + 2^-k goes through one factor of an operator whose other factor is 1, so the exact result is the same number. The
largest k for which it comes back is the number of bits that the operator keeps. 2^k + 1 - 2^k shows the bits of a sum in the
same way. Nothing is inferred from environment variables.

Offered: FACTORS, SUMS, bits_of_factor, bits_of_sum, bits_of_products, of_float32, coarseness.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.precision import expected_bits_of_products
from xpulab.reference.bounds import BITS
from xpulab.reference.rounding import rounding_of_a_layer

SIDE = 64
"""Rows and columns of the matrices: enough that a device uses its kernels for matrix products."""

Through = Callable[[paddle.Tensor, paddle.Tensor], paddle.Tensor]


@dataclass(frozen=True)
class Factor:
    """One factor of an operator.

    through: from a tensor [SIDE, SIDE] and the identity of this shape, of one type, computes a tensor with the same first row.
    lost: how many bits less than the type has may come back, because the result is a function of the factor.
    back: from the result to the factor, in double precision.
    """

    through: Through
    lost: int = 0
    back: Callable[[np.ndarray], np.ndarray] = np.asarray


def _logit(chance: np.ndarray) -> np.ndarray:
    return np.log(chance / (1 - chance))


def _gradient(through: Callable[[paddle.Tensor], paddle.Tensor], one: paddle.Tensor, upstream: paddle.Tensor) -> paddle.Tensor:
    one = one.clone().detach()
    one.stop_gradient = False
    return paddle.grad(through(one), one, grad_outputs=upstream)[0]


def _scores(values: paddle.Tensor, eye: paddle.Tensor) -> paddle.Tensor:
    """Attention of a query [SIDE * SIDE, 1 query, 1 head, SIDE] over two keys, whose values are 1 and 0."""
    query = paddle.zeros([SIDE * SIDE, SIDE], values.dtype)
    query[:, 0] = values.reshape([-1])
    keys = paddle.stack([eye[0] * SIDE**0.5, eye[0] * 0]).reshape([1, 2, 1, SIDE]).expand([SIDE * SIDE, 2, 1, SIDE])
    held = paddle.stack([paddle.ones_like(eye[0]), eye[0] * 0]).reshape([1, 2, 1, SIDE]).expand([SIDE * SIDE, 2, 1, SIDE])
    return F.scaled_dot_product_attention(query.reshape([-1, 1, 1, SIDE]), keys, held)[:, 0, 0, 0].reshape([SIDE, SIDE])


def _attend(values: paddle.Tensor, eye: paddle.Tensor) -> paddle.Tensor:
    """Attention over one key: its weight is 1."""
    query = paddle.ones([SIDE, 1, 1, SIDE], values.dtype)
    return F.scaled_dot_product_attention(query, query, values.reshape([SIDE, 1, 1, SIDE])).reshape([SIDE, SIDE])


def _softmax(values: paddle.Tensor, eye: paddle.Tensor) -> paddle.Tensor:
    return F.softmax(paddle.stack([values, paddle.zeros_like(values)]), axis=0)[0]


FACTORS: dict[str, Factor] = {
    "matmul, left": Factor(lambda v, eye: v @ eye),
    "matmul, right": Factor(lambda v, eye: eye @ v),
    "matmul, transposed": Factor(lambda v, eye: paddle.matmul(eye, v, transpose_y=True).T),
    "matmul, gradient of left": Factor(lambda v, eye: _gradient(lambda one: one @ eye, eye, v)),
    "matmul, gradient of right": Factor(lambda v, eye: _gradient(lambda one: eye @ one, eye, v)),
    "bmm": Factor(lambda v, eye: paddle.bmm(v.unsqueeze(0), eye.unsqueeze(0))[0]),
    "linear, input": Factor(lambda v, eye: F.linear(v, eye, paddle.zeros([SIDE], v.dtype))),
    "linear, weight": Factor(lambda v, eye: F.linear(eye, v, paddle.zeros([SIDE], v.dtype))),
    "linear, bias": Factor(lambda v, eye: F.linear(0 * eye, eye, v[0])),
    "linear, gradient of input": Factor(lambda v, eye: _gradient(lambda one: F.linear(one, eye), eye, v)),
    "linear, gradient of weight": Factor(lambda v, eye: _gradient(lambda one: F.linear(eye, one), eye, v)),
    "attention, scores": Factor(_scores, lost=5, back=_logit),
    "attention, values": Factor(_attend),
    "attention, gradient of values": Factor(lambda v, eye: _gradient(lambda one: _attend(one, eye), eye, v)),
    "softmax": Factor(_softmax, lost=4, back=_logit),
    "add": Factor(lambda v, eye: v + 0 * eye),
    "multiply": Factor(lambda v, eye: v * (0 * eye + 1)),
}
"""By name the factors of operators that training uses, forward and backward."""

SUMS: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "sum of a row": lambda terms: terms.sum(axis=1),
    "sum of a column": lambda terms: terms.T.sum(axis=0),
    "mean": lambda terms: terms.mean(axis=1) * terms.shape[1],
    "matmul": lambda terms: terms @ paddle.ones([terms.shape[1], SIDE], terms.dtype)[:, :1],
    "linear": lambda terms: F.linear(terms, paddle.ones([terms.shape[1], SIDE], terms.dtype))[:, 0],
    "gradient of an expanded row": lambda terms: _gradient(
        lambda one: one.expand([terms.shape[1], terms.shape[0]]), paddle.zeros([1, terms.shape[0]], terms.dtype), terms.T
    ),
}
"""By name the sums: from terms [rows, terms] to the sums of the rows."""

LARGEST_POWER = {"float64": 51, "float32": 22, "bfloat16": 22, "float16": 14}
"""By type the largest k that is tried in a sum: the type holds 2^k, and single precision holds every partial sum."""


def bits_of_factor(factor: Factor, dtype: Any, rounded: Callable[[np.ndarray], np.ndarray] = np.asarray) -> int:
    """How many bits of this factor's fraction the operator keeps: the largest k for which 1 + 2^-j comes back for all j <= k.

    dtype: a key of BITS. rounded: applied to the numbers before; for a control, a function that rounds them to fewer bits.
    At most the bits that the type has.
    """
    powers = np.arange(1, BITS[dtype] + 1)
    exact = 1 + 0.5**powers
    given = np.ones([SIDE, SIDE])
    given[0, : len(exact)] = rounded(exact)
    eye = paddle.eye(SIDE, dtype="float32").astype(dtype)
    result = factor.through(paddle.to_tensor(given).astype(dtype), eye)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = factor.back(result.astype("float64").numpy()[0, : len(exact)])
    back = np.abs(found - exact) < 0.5 ** (powers + 1)
    return int(len(exact) if back.all() else np.argmin(back))


def bits_of_sum(add: Callable[[paddle.Tensor], paddle.Tensor], dtype: Any, largest: int | None = None) -> int:
    """How many bits the accumulator of a sum keeps: the largest k for which 2^j + 1 - 2^j is 1 for all j <= k.

    The terms are far apart in a row of SIDE terms, all others are 0. largest: the largest k to try, by default LARGEST_POWER.
    """
    powers = np.arange(1, (largest or LARGEST_POWER[dtype]) + 1)
    terms = np.zeros([len(powers), SIDE])
    terms[:, 0], terms[:, SIDE // 2], terms[:, -1] = 2.0**powers, 1.0, -(2.0**powers)
    right = add(paddle.to_tensor(terms).astype(dtype)).astype("float64").numpy().reshape(-1) == 1
    return int(powers[-1] if right.all() else powers[np.argmin(right)] - 1)


def bits_of_products(device: str) -> dict[str, int]:
    """By type the bits that a matrix product keeps of its factors, for types in which it keeps fewer than the type has.

    Measured, for float32 and the types of 16 bits that the device claims. Where a product keeps less than release and variables
    promise, this is what they promise: a tolerance must not grow with a defect. device: "cpu", "gpu", "xpu" or "sim".
    """
    promised = expected_bits_of_products(device)
    return {dtype: max(bits, _measured(dtype)) for dtype, bits in promised.items() if max(bits, _measured(dtype)) < BITS[dtype]}


def of_float32(device: str) -> int:
    """The bits that a product of float32 keeps, 23 where it keeps all of them; as bits_of_products()."""
    return bits_of_products(device).get("float32", BITS["float32"])


def coarseness(device: str) -> float:
    """The relative error of a layer's output beyond that of single precision; 0 where products keep all bits."""
    bits = of_float32(device)
    return rounding_of_a_layer(bits) if bits < BITS["float32"] else 0.0


@cache
def _measured(dtype: Any) -> int:
    return min(bits_of_factor(FACTORS[name], dtype) for name in ("matmul, left", "matmul, right"))
