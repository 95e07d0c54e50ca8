"""The bits that operators really keep of their factors, found from inputs that were designed for it.

The number 1 + 2^-k goes through one factor of an operator whose other factor is 1, so the exact result is the same number. The
largest k for which it comes back is the number of bits that the operator keeps. Nothing is inferred from environment variables.
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

Shape = tuple[int, int, int]
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


def gradient(through: Callable[[paddle.Tensor], paddle.Tensor], one: paddle.Tensor, upstream: paddle.Tensor) -> paddle.Tensor:
    """The gradient of a function of one tensor, given that of its result."""
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


FACTORS: dict[str, Factor] = {
    "matmul, left": Factor(lambda v, eye: v @ eye),
    "matmul, right": Factor(lambda v, eye: eye @ v),
    "matmul, transposed": Factor(lambda v, eye: paddle.matmul(eye, v, transpose_y=True).T),
    "matmul, gradient of left": Factor(lambda v, eye: gradient(lambda one: one @ eye, eye, v)),
    "matmul, gradient of right": Factor(lambda v, eye: gradient(lambda one: eye @ one, eye, v)),
    "bmm": Factor(lambda v, eye: paddle.bmm(v.unsqueeze(0), eye.unsqueeze(0))[0]),
    "linear, input": Factor(lambda v, eye: F.linear(v, eye, paddle.zeros([SIDE], v.dtype))),
    "linear, weight": Factor(lambda v, eye: F.linear(eye, v, paddle.zeros([SIDE], v.dtype))),
    "linear, bias": Factor(lambda v, eye: F.linear(0 * eye, eye, v[0])),
    "linear, gradient of input": Factor(lambda v, eye: gradient(lambda one: F.linear(one, eye), eye, v)),
    "linear, gradient of weight": Factor(lambda v, eye: gradient(lambda one: F.linear(eye, one), eye, v)),
    "attention, scores": Factor(_scores, lost=5, back=_logit),
    "attention, values": Factor(_attend),
    "attention, gradient of values": Factor(lambda v, eye: gradient(lambda one: _attend(one, eye), eye, v)),
    "softmax": Factor(lambda v, eye: F.softmax(paddle.stack([v, 0 * v]), axis=0)[0], lost=4, back=_logit),
    "add": Factor(lambda v, eye: v + 0 * eye),
    "multiply": Factor(lambda v, eye: v * (0 * eye + 1)),
}
"""By name the factors of operators that training uses, forward and backward."""

LONG = 4096  # terms, rows or columns of a layer of a large model
SHAPES = ((SIDE, SIDE, SIDE), (SIDE, LONG, SIDE), (LONG, SIDE, SIDE), (SIDE, SIDE, LONG))
LARGE = (LONG, LONG, LONG)
"""Products whose factors are measured, as (rows, terms, columns): libraries choose the kernel, and its precision, by shape.
LARGE would take the CPU seconds."""


def bits_of_factor(
    factor: Factor,
    dtype: Any,
    rounded: Callable[[np.ndarray], np.ndarray] = np.asarray,
    of: tuple[int, int] = (SIDE, SIDE),
    other: tuple[int, int] = (SIDE, SIDE),
) -> int:
    """How many bits of this factor's fraction the operator keeps: the largest k for which 1 + 2^-j comes back for all j <= k.

    dtype: a key of BITS. rounded: applied to the numbers before; for a control, a function that rounds them to fewer bits.
    of, other: the shapes of this factor and of the other one. At most the bits that the type has.
    """
    powers = np.arange(1, BITS[dtype] + 1)
    exact = 1 + 0.5**powers
    given = np.ones(of, "float32" if dtype != "float64" else dtype)
    given[0, : len(exact)] = rounded(exact)
    eye = paddle.eye(*other, dtype="float32").astype(dtype)
    result = factor.through(paddle.to_tensor(given).astype(dtype), eye)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = factor.back(result.astype("float64").numpy()[0, : len(exact)])
    back = np.abs(found - exact) < 0.5 ** (powers + 1)
    return int(len(exact) if back.all() else np.argmin(back))


def bits_of_products(device: str) -> dict[str, int]:
    """By type the bits that a matrix product keeps of its factors, for types in which it keeps fewer than the type has.

    Measured with each of shapes_of(device), for float32 and the types of 16 bits that the device claims: the fewest bits count.
    Where a product keeps less than release and variables promise, this is what they promise: a tolerance must not grow with a
    defect. device: "cpu", "gpu", "xpu" or "sim".
    """
    found = {dtype: max(bits, _measured(dtype, device)) for dtype, bits in expected_bits_of_products(device).items()}
    return {dtype: bits for dtype, bits in found.items() if bits < BITS[dtype]}


def of_float32(device: str) -> int:
    """The bits that a product of float32 keeps, 23 where it keeps all of them; as bits_of_products()."""
    return bits_of_products(device).get("float32", BITS["float32"])


def coarseness(device: str) -> float:
    """The relative error of a layer's output beyond that of single precision; 0 where products keep all bits."""
    bits = of_float32(device)
    return rounding_of_a_layer(bits) if bits < BITS["float32"] else 0.0


def shapes_of(device: str, dtype: Any) -> tuple[Shape, ...]:
    """The shapes with which a device ("cpu", "gpu", "xpu" or "sim") is measured; an XPU has the CPU compute float64."""
    return (*SHAPES, LARGE) if device in ("gpu", "xpu") and dtype != "float64" else SHAPES


def bits_by_shape(shape: Shape, dtype: Any, rounded: Callable[[np.ndarray], np.ndarray] = np.asarray) -> dict[str, int]:
    """The bits that a product of this shape keeps of its "left" and its "right" factor. rounded: as for bits_of_factor."""
    left, right = shape[:2], shape[1:]
    return {
        "left": bits_of_factor(FACTORS["matmul, left"], dtype, rounded, left, right),
        "right": bits_of_factor(FACTORS["matmul, right"], dtype, rounded, right, left),
    }


@cache
def _measured(dtype: Any, device: str) -> int:
    return min(min(bits_by_shape(shape, dtype).values()) for shape in shapes_of(device, dtype))
