"""Casts between all types of numbers on a grid: value and gradient against numpy, to the bit.

Nothing is read or written by a cast of Paddle's: tensors are made from arrays of their own type, bfloat16 from its bits. From
float64 to types of 16 bits the right way is through float32, as in every framework.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import paddle
from ml_dtypes import bfloat16

from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.chapters.shared.operator_tester import EMPTY, LAYOUTS, OF_LAYOUTS
from xpulab.checks.compared import Compared, numbers
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import BITS

INTEGERS = ("int64", "int32", "int8", "uint8")
TYPES = (*BITS, *INTEGERS, "bool")

WAYS = {f"{source} to {target}": (source, target) for source, target in permutations(TYPES, 2)}


def _spread(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Numbers of both signs, whose exponents to the base 10 are between low and high."""
    exact: np.ndarray = rng.choice([-1.0, 1.0], shape) * 10.0 ** rng.uniform(low, high, shape)
    return exact


VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "ordinary": lambda rng, shape: rng.uniform(0, 100, shape),
    "negative": lambda rng, shape: -rng.uniform(0, 100, shape),
    "large": lambda rng, shape: _spread(rng, shape, 2, 17),
    "halves": lambda rng, shape: rng.integers(0, 100, shape) + 0.5,
    "ties of 16 bits": lambda rng, shape: 1 + (2 * rng.integers(0, 60, shape) + 1) * 2.0 ** -rng.choice([8, 11], shape),
    "small": lambda rng, shape: _spread(rng, shape, -8, -3),
    "tiny": lambda rng, shape: _spread(rng, shape, -36, -20),
    "denormal": lambda rng, shape: rng.choice([-0.0, 1.0, -1.0], shape) * 2.0 ** -rng.choice([20, 23, 130, 148], shape),
    "not finite": lambda rng, shape: rng.choice([np.nan, np.inf, -np.inf, 1.0], shape),
}

_OF_FLOATS = (*VALUES.values(),)[3:]

CASTS = Grid(
    {
        "way": WAYS,
        "values": VALUES,
        "shape": ((6, 5), (), (0, 4), (2, 1025)),
    },
    {
        "integers and bool are finite, and have no halves": lambda way, values: (way[0] not in BITS and values in _OF_FLOATS),
        "what an integer cannot hold has no right value": lambda way, values: (
            way[1] in INTEGERS and (values is VALUES["not finite"] or (values is VALUES["negative"] and way[1] == "uint8"))
        ),
    },
    EMPTY,
    each="way",
).with_further({"shape": interesting.SHAPES, "layout": {**LAYOUTS, **interesting.LAYOUTS}}, OF_LAYOUTS | interesting.RULES)


def _measure(case: Case) -> Compared:
    """Cast on the device in use; of two floating types also the gradient."""
    (source, target), rng = case.way, case.rng()
    drawn = _held_by_both(case.values(rng, case.shape), source, target)
    tensor = getattr(case, "layout", LAYOUTS["contiguous"]).tensor_of(_coded(drawn, source))  # a further axis
    drawn = _decoded(tensor)
    has_gradient = source in BITS and target in BITS
    tensor.stop_gradient = not has_gradient
    result = tensor.cast(target)
    found, right = {"result": _decoded(result)}, {"result": _rounded(drawn, source, target)}
    if has_gradient:
        weight = _rounded(rng.uniform(0.5, 1.5, case.shape), "float64", target)
        (slope,) = paddle.grad([result], [tensor], [paddle.to_tensor(_coded(weight, target))])
        found["gradient"], right["gradient"] = _decoded(slope), _rounded(weight, target, source)
    return Compared(*({name: numbers(each) for name, each in every.items()} for every in (found, right)))


RUN = one_by_one(_measure), add_row_of(lambda case: [("cast", dtype, "") for dtype in case.way])


def _held_by_both(drawn: np.ndarray, source: str, target: str) -> np.ndarray:
    """The numbers as the source has them, none of them larger than an integer of source or target can be.

    Integers that become floating numbers have at most 24 bits for a target of 16 bits.
    """
    for dtype in (source, target):
        if dtype in INTEGERS:
            limits = np.iinfo(dtype)
            drawn = np.clip(drawn, float(limits.min), min(float(limits.max), 2.0**62))
    if source in INTEGERS and target in ("float16", "bfloat16"):
        drawn = np.clip(drawn, -(2.0**24), 2.0**24)
    if source in INTEGERS:
        return np.trunc(drawn)
    return drawn > 50 if source == "bool" else _rounded(drawn, "float64", source)


def _rounded(values: np.ndarray, source: str, target: str) -> np.ndarray:
    """What numpy says of a cast: to floating types rounded to the nearest, ties to even; to integers towards zero."""
    with np.errstate(over="ignore", invalid="ignore"):
        if target in BITS and source == "float64" and BITS[target] < BITS["float32"]:
            values = values.astype("float32")
        if target == "bfloat16":
            return np.asarray(values, "float32").astype(bfloat16).astype("float64")
        rounded: np.ndarray = np.asarray(values).astype(target)
    return rounded.astype("float64")


def _coded(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers, which the type holds, as an array that Paddle takes for a tensor of it."""
    if dtype == "bfloat16":
        return np.asarray(values, "float32").astype(bfloat16).view("uint16")
    return np.asarray(values).astype(dtype)


def _decoded(tensor: Any) -> np.ndarray:
    array = tensor.numpy()
    return (array.view(bfloat16) if str(tensor.dtype) == "paddle.bfloat16" else array).astype("float64")
