"""Normalization on a grid: layer norm and RMS norm with and without weight and bias, each input frozen in turn, both ways.

check.grid("numerics.norms", norms(types), one_by_one(measure), add_row, level=level, seed=seed, means=...)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import LAYOUTS, VALUES, Compared, Right, add_compared, computed, long_sum
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table


@dataclass(frozen=True)
class Norm:
    """A normalization over the last axes.

    call: Paddle's, of the input, weight and bias or None, and epsilon. axes: how many. is_centered: whether the mean is
    subtracted. kernel: Paddle's name of it.
    """

    call: Callable[..., paddle.Tensor]
    axes: int
    is_centered: bool
    kernel: str


def _rms_norm(x: paddle.Tensor, weight: Any, bias: Any, epsilon: float) -> paddle.Tensor:
    """As LlamaRMSNorm and Qwen2RMSNorm of PaddleNLP compute it: in float32, but for float64 here."""
    wide = x if x.dtype == paddle.float64 else x.astype("float32")
    normal = (paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * wide).astype(x.dtype)
    return normal if weight is None else normal * weight


NORMS = {
    "layer_norm": Norm(
        lambda x, weight, bias, epsilon: F.layer_norm(x, x.shape[-1:], weight, bias, epsilon), 1, True, "layer_norm"
    ),
    "layer_norm of two axes": Norm(
        lambda x, weight, bias, epsilon: F.layer_norm(x, x.shape[-2:], weight, bias, epsilon), 2, True, "layer_norm"
    ),
    "RMS norm": Norm(_rms_norm, 1, False, "rsqrt"),
}

SHAPES = ((6, 5), (5,), (3, 4, 5), (0, 2, 4), (4, 1), (33, 127), (2, 1025), (1025, 8), (2, 33, 31))
"""Rows and columns; one row; three axes; no row; rows of one; around powers of two; a long row; many rows; long matrices."""

PARAMETERS = {"both": (True, True), "weight": (True, False), "bias": (False, True), "neither": (False, False)}
"""By name whether there are a weight and a bias."""

FROZEN = {"nothing": (), "input": ("input",), "weight": ("weight",), "bias": ("bias",), "weight and bias": ("weight", "bias")}

EPSILON = {"2^-17": 2.0**-17, "2^-10": 2.0**-10}
"""Exact in single precision: Paddle stores it so, for float64 too."""


def norms(types: Sequence[str]) -> Grid:
    """The grid of normalizations. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "norm": tuple(NORMS),
        "dtype": types,
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": VALUES,
        "parameters": PARAMETERS,
        "frozen": FROZEN,
        "epsilon": EPSILON,
    }
    return Grid(axes, RULES, {"shape": ["(0, 2, 4)"]}, each="norm")


RULES = {
    "one axis cannot be transposed": lambda shape, layout: len(shape) < 2 and layout is LAYOUTS["transposed"],
    "an empty tensor has no row to repeat": lambda shape, layout: 0 in shape and layout is LAYOUTS["broadcast"],
    "layer_norm has an axis that it does not normalize": lambda norm, shape: (
        NORMS[norm].is_centered and len(shape) <= NORMS[norm].axes
    ),
    "RMS norm has a weight, or none": lambda norm, parameters: parameters[1] and not NORMS[norm].is_centered,
    "only what is there can be frozen": lambda parameters, frozen: (
        ("weight" in frozen and not parameters[0]) or ("bias" in frozen and not parameters[1])
    ),
    "something wants a gradient": lambda parameters, frozen: "input" in frozen and not any(parameters),
}


def measure(case: Case) -> Compared:
    """Compute the normalization and the gradients of what is not frozen on the device in use."""
    norm, rng, epsilon = NORMS[case.norm], case.rng(), case.epsilon
    axes = tuple(range(-norm.axes, 0))
    size = math.prod(case.shape[-norm.axes :])
    given = [case.layout(case.values(rng, case.shape), case.dtype)]
    names = ["input"]
    for name, is_there in zip(("weight", "bias"), case.parameters, strict=True):
        if is_there:
            given.append(paddle.to_tensor(rng.uniform(0.5, 2, size)).astype(case.dtype))
            names.append(name)

    def call(*tensors: paddle.Tensor) -> paddle.Tensor:
        by_name = dict(zip(names, tensors, strict=True))
        return norm.call(by_name["input"], by_name.get("weight"), by_name.get("bias"), epsilon)

    def parts(x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        """The normal numbers, their spread, how uncertain they are, the weight, the bias."""
        by_name = dict(zip(names[1:], others, strict=True))
        mean = x.mean(axis=axes, keepdims=True) if norm.is_centered else 0.0 * x.sum(axis=axes, keepdims=True)
        spread = np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
        uncertain = 4 * (1 + (np.abs(x) + np.abs(mean)) / spread) * long_sum(size)
        weight, bias = (by_name.get(name, np.full(size, number)) for name, number in (("weight", 1.0), ("bias", 0.0)))
        of_row = x.shape[x.ndim - norm.axes :]
        return (x - mean) / spread, spread, uncertain, weight.reshape(of_row), bias.reshape(of_row)

    def value(x: np.ndarray, *others: np.ndarray) -> Right:
        normal, _, uncertain, weight, bias = parts(x, *others)
        return normal * weight + bias, uncertain * np.abs(weight) + np.abs(normal * weight) + np.abs(bias)

    def slopes(upstream: np.ndarray, x: np.ndarray, *others: np.ndarray) -> list[Right]:
        normal, spread, uncertain, weight, _ = parts(x, *others)
        inner = upstream * weight
        along = (inner * normal).mean(axis=axes, keepdims=True)
        mean = inner.mean(axis=axes, keepdims=True) if norm.is_centered else 0 * along
        around = (np.abs(inner) + np.abs(inner).mean(axis=axes, keepdims=True) * (1 + np.abs(normal)) * 2) / spread
        found = [((inner - mean - normal * along) / spread, around * uncertain * (1 + np.abs(normal)))]
        longer = long_sum(x.size // size)
        of_all = {
            "weight": (upstream * normal, np.abs(upstream) * (uncertain + np.abs(normal))),
            "bias": (upstream, np.abs(upstream)),
        }
        for name in names[1:]:
            slope, terms = (each.reshape(-1, size).sum(axis=0) for each in of_all[name])
            found.append((slope, terms * longer))
        return found

    frozen = [place for place, name in enumerate(names) if name in case.frozen]
    return computed(rng, case.dtype, call, given, value, slopes, frozen)


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case: shapes, value and gradients, in units of what rounding may cause."""
    add_compared(rows, case.name, found, case.dtype, (NORMS[case.norm].kernel,))
