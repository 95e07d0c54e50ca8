"""Functions of each element, and arithmetic of two tensors, on grids: value and gradients against formulas in double precision.

The gradient is that of sum(result * weight) with random weights, as in operator_grids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import (
    EMPTY,
    INTEGERS,
    LAYOUTS,
    RULES,
    SHAPES,
    VALUES,
    Compared,
    Right,
    add_compared,
    computed,
    long_sum,
    summed,
)
from xpulab.chapters.shared import precision
from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table


@dataclass(frozen=True)
class Function:
    """A function of one number.

    call: Paddle's. value, slope: the function and its derivative in double precision. kernel: Paddle's name of it.
    is_of_positives: whether it is only defined for numbers above 0. grows: whether large numbers leave the type.
    """

    call: Callable[[paddle.Tensor], paddle.Tensor]
    value: Callable[[np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray], np.ndarray]
    kernel: str
    is_of_positives: bool = False
    grows: bool = False


_erf = np.vectorize(math.erf, otypes=["float64"])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(np.minimum(x, 0)) / (1 + np.exp(np.minimum(x, 0))), 1 / (1 + np.exp(-np.maximum(x, 0))))


def _bell(x: np.ndarray) -> np.ndarray:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _inner(x: np.ndarray) -> np.ndarray:
    """What gelu's approximation takes the hyperbolic tangent of."""
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _slope_of_gelu_tanh(x: np.ndarray) -> np.ndarray:
    tangent = np.tanh(_inner(x))
    return (1 + tangent) / 2 + x / 2 * (1 - tangent**2) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)


FUNCTIONS = {
    "exp": Function(lambda x: paddle.exp(x), np.exp, np.exp, "exp", grows=True),
    "log": Function(lambda x: paddle.log(x), np.log, lambda x: 1 / x, "log", is_of_positives=True),
    "log1p": Function(lambda x: paddle.log1p(x), np.log1p, lambda x: 1 / (1 + x), "log1p", is_of_positives=True),
    "expm1": Function(lambda x: paddle.expm1(x), np.expm1, np.exp, "expm1", grows=True),
    "sqrt": Function(lambda x: paddle.sqrt(x), np.sqrt, lambda x: 0.5 / np.sqrt(x), "sqrt", is_of_positives=True),
    "rsqrt": Function(lambda x: paddle.rsqrt(x), lambda x: x**-0.5, lambda x: -0.5 * x**-1.5, "rsqrt", is_of_positives=True),
    "reciprocal": Function(
        lambda x: paddle.reciprocal(x), lambda x: 1 / x, lambda x: -1 / x**2, "reciprocal", is_of_positives=True
    ),
    "square": Function(lambda x: paddle.square(x), np.square, lambda x: 2 * x, "square"),
    "pow 2": Function(lambda x: x.pow(2), np.square, lambda x: 2 * x, "pow"),
    "pow 3": Function(lambda x: paddle.pow(x, 3.0), lambda x: x**3, lambda x: 3 * x**2, "pow"),
    "scale": Function(lambda x: paddle.scale(x, 0.5, bias=3.0), lambda x: 0.5 * x + 3, lambda x: 0.5 + 0 * x, "scale"),
    "clip": Function(
        lambda x: paddle.clip(x, -0.75, 1.25),
        lambda x: np.clip(x, -0.75, 1.25),
        lambda x: 1.0 * (np.abs(x - 0.25) <= 1),
        "clip",
    ),
    "abs": Function(lambda x: paddle.abs(x), np.abs, np.sign, "abs"),
    "sin": Function(lambda x: paddle.sin(x), np.sin, np.cos, "sin"),
    "cos": Function(lambda x: paddle.cos(x), np.cos, lambda x: -np.sin(x), "cos"),
    "tanh": Function(lambda x: paddle.tanh(x), np.tanh, lambda x: 1 - np.tanh(x) ** 2, "tanh"),
    "erf": Function(lambda x: paddle.erf(x), _erf, lambda x: 2 * _bell(math.sqrt(2) * x) * math.sqrt(2), "erf"),
    "sigmoid": Function(lambda x: F.sigmoid(x), _sigmoid, lambda x: _sigmoid(x) * _sigmoid(-x), "sigmoid"),
    "log_sigmoid": Function(lambda x: F.log_sigmoid(x), lambda x: -np.logaddexp(0, -x), lambda x: _sigmoid(-x), "logsigmoid"),
    "softplus": Function(lambda x: F.softplus(x), lambda x: np.logaddexp(0, x), _sigmoid, "softplus"),
    "relu": Function(lambda x: F.relu(x), lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, "relu"),
    "silu": Function(lambda x: F.silu(x), lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) * (1 + x * _sigmoid(-x)), "swish"),
    "gelu": Function(
        lambda x: F.gelu(x),
        lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
        lambda x: (1 + _erf(x / math.sqrt(2))) / 2 + x * _bell(x),
        "gelu",
    ),
    "gelu, approximate": Function(
        lambda x: F.gelu(x, approximate=True), lambda x: x * (1 + np.tanh(_inner(x))) / 2, _slope_of_gelu_tanh, "gelu"
    ),
}


def far_above(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Where activations are the identity, and a formula with powers or exponentials overflows."""
    return np.resize(rng.permutation([40.0, 1e4]), shape)


def far_below(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Where activations are 0."""
    return -far_above(rng, shape)


def functions(types: Sequence[str]) -> Grid:
    """The grid of functions of one number. types: the floating types that the device has."""
    values = {**VALUES, "far above zero": far_above, "far below zero": far_below}
    rules = {
        **{reason: rule for reason, rule in RULES.items() if reason in _OF_LAYOUTS},
        "large numbers leave the type": lambda function, values: (
            FUNCTIONS[function].grows and values in (far_above, far_below, VALUES["a large mean"])
        ),
    }
    axes: dict[str, Any] = {"function": tuple(FUNCTIONS), "dtype": types, "layout": LAYOUTS, "shape": SHAPES, "values": values}
    return Grid(axes, rules, EMPTY, each="function")


_OF_LAYOUTS = (
    "a tensor without axes has no layout",
    "one axis cannot be transposed",
    "an empty tensor has no row to repeat",
)


def measure_function(case: Case) -> Compared:
    """Compute the function and its gradient on the device in use."""
    function, rng = FUNCTIONS[case.function], case.rng()
    drawn = case.values(rng, case.shape)
    if function.is_of_positives:
        drawn = np.maximum(np.abs(drawn), precision.LEAST.get(case.dtype, 0.0))
    tensor = case.layout(drawn, case.dtype)

    def value(x: np.ndarray) -> Right:
        right = function.value(x)
        return right, np.abs(right) + np.abs(x * function.slope(x)) + np.minimum(np.abs(x), 8)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        slope = weight * function.slope(x)
        return [(slope, np.abs(slope) * (4 + np.abs(x)) + np.abs(weight) * (1 + np.minimum(np.abs(x), 8)))]

    return computed(rng, case.dtype, function.call, [tensor], value, slopes)


def add_function_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case: shapes, value and gradient, in units of what rounding may cause."""
    add_compared(rows, case.name, found, case.dtype, (FUNCTIONS[case.function].kernel,))


# ------------------------------------------------------------------------------------------------------------- arithmetic


@dataclass(frozen=True)
class Arithmetic:
    """An operator of two numbers.

    call: Paddle's. value: in double precision. slopes: the derivatives by both, or None.
    kernel: Paddle's name of it. in_place: the method that writes into the first tensor, or "". takes: "numbers", "floats",
    "comparable" (numbers and bool), "truth" (the same, with zeros among them), or "bits" (integers and bool).
    """

    call: Callable[[Any, Any], paddle.Tensor]
    value: Callable[[np.ndarray, np.ndarray], np.ndarray]
    slopes: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None
    kernel: str
    in_place: str
    takes: str = "numbers"


def _of_bits(operator: Callable[[Any, Any], Any]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The operator of two integers, for arrays of double precision that hold integers."""
    return lambda x, y: np.asarray(operator(x.astype("int64"), y.astype("int64")))


def _larger(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of the first of two numbers of which one is taken: Paddle shares it where both are equal."""
    return (np.sign(x - y) + 1) / 2


ARITHMETIC = {
    "add": Arithmetic(lambda x, y: paddle.add(x, y), np.add, lambda x, y: (1 + 0 * x, 1 + 0 * y), "add", "add_"),
    "subtract": Arithmetic(
        lambda x, y: paddle.subtract(x, y), np.subtract, lambda x, y: (1 + 0 * x, -1 + 0 * y), "subtract", "subtract_"
    ),
    "multiply": Arithmetic(lambda x, y: paddle.multiply(x, y), np.multiply, lambda x, y: (y, x), "multiply", "multiply_"),
    "divide": Arithmetic(
        lambda x, y: paddle.divide(x, y), np.divide, lambda x, y: (1 / y, -x / y**2), "divide", "divide_", takes="floats"
    ),
    "maximum": Arithmetic(
        lambda x, y: paddle.maximum(x, y), np.maximum, lambda x, y: (_larger(x, y), _larger(y, x)), "maximum", ""
    ),
    "minimum": Arithmetic(
        lambda x, y: paddle.minimum(x, y), np.minimum, lambda x, y: (_larger(y, x), _larger(x, y)), "minimum", ""
    ),
    "floor_divide": Arithmetic(lambda x, y: paddle.floor_divide(x, y), np.floor_divide, None, "floor_divide", "floor_divide_"),
    "remainder": Arithmetic(lambda x, y: paddle.remainder(x, y), np.remainder, None, "remainder", "remainder_"),
    "==": Arithmetic(lambda x, y: x == y, np.equal, None, "equal", "", takes="comparable"),
    "!=": Arithmetic(lambda x, y: x != y, np.not_equal, None, "not_equal", "", takes="comparable"),
    "<": Arithmetic(lambda x, y: x < y, np.less, None, "less_than", ""),
    "<=": Arithmetic(lambda x, y: x <= y, np.less_equal, None, "less_equal", ""),
    ">": Arithmetic(lambda x, y: x > y, np.greater, None, "greater_than", ""),
    ">=": Arithmetic(lambda x, y: x >= y, np.greater_equal, None, "greater_equal", ""),
    "logical_and": Arithmetic(lambda x, y: paddle.logical_and(x, y), np.logical_and, None, "logical_and", "", "truth"),
    "logical_or": Arithmetic(lambda x, y: paddle.logical_or(x, y), np.logical_or, None, "logical_or", "", "truth"),
    "logical_xor": Arithmetic(lambda x, y: paddle.logical_xor(x, y), np.logical_xor, None, "logical_xor", "", "truth"),
    "not (x or y)": Arithmetic(
        lambda x, y: paddle.logical_not(paddle.logical_or(x, y)),
        lambda x, y: np.logical_not(np.logical_or(x, y)),
        None,
        "logical_or",
        "",
        "truth",
    ),
    "x & y": Arithmetic(lambda x, y: x & y, _of_bits(np.bitwise_and), None, "bitwise_and", "bitwise_and_", "bits"),
    "x | y": Arithmetic(lambda x, y: x | y, _of_bits(np.bitwise_or), None, "bitwise_or", "bitwise_or_", "bits"),
    "x ^ y": Arithmetic(lambda x, y: x ^ y, _of_bits(np.bitwise_xor), None, "bitwise_xor", "bitwise_xor_", "bits"),
    "x & ~y": Arithmetic(lambda x, y: x & ~y, _of_bits(lambda x, y: x & ~y), None, "bitwise_not", "", "bits"),
}

TAKEN = {
    "numbers": ("floats", "integers"),
    "floats": ("floats",),
    "comparable": ("floats", "integers", "bool"),
    "truth": ("floats", "integers", "bool"),
    "bits": ("integers", "bool"),
}
"""By what an operator takes the kinds of types."""

OTHERS: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "same shape": lambda shape: shape,
    "row": lambda shape: shape[-1:],
    "column": lambda shape: (*shape[:-1], 1),
    "0-d": lambda shape: (),
    "one more axis": lambda shape: (2, *shape),
}
"""By name the shape of the second tensor: it is broadcast to the first, or the first to it."""

_ORDER = {"first, second": False, "second, first": True}
_WAYS = {"function": "function", "in place": "in place"}
_SIGNED = {name: VALUES[name] for name in ("normal", "ties", "negative", "a large mean")}


def arithmetic(types: Sequence[str]) -> Grid:
    """The grid of operators of two tensors. types: the floating types that the device has."""
    rules: dict[str, Callable[..., bool]] = {
        **{reason: rule for reason, rule in RULES.items() if reason in _OF_LAYOUTS},
        "a number is broadcast from no row and no column": lambda shape, other: not shape
        and other in (OTHERS["row"], OTHERS["column"]),
        "operators take floating numbers, integers, bool, or some of them": lambda operator, dtype: (
            ("floats" if dtype in types else "bool" if dtype == "bool" else "integers") not in TAKEN[ARITHMETIC[operator].takes]
        ),
        "the device has no kernel for this type": lambda operator, dtype: bool(lacked(ARITHMETIC[operator].kernel, dtype)),
        "integers and bool are ties, or negative": lambda dtype, values: (
            dtype not in types and values not in (VALUES["ties"], VALUES["negative"])
        ),
        "nothing is written in place that has another shape, or no such method": lambda operator, way, other, order: (
            way == "in place" and (order or other is OTHERS["one more axis"] or not ARITHMETIC[operator].in_place)
        ),
    }
    axes: dict[str, Any] = {
        "operator": tuple(ARITHMETIC),
        "dtype": (*types, *INTEGERS, "bool"),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "other": OTHERS,
        "order": _ORDER,
        "values": _SIGNED,
        "way": _WAYS,
    }
    return Grid(axes, rules, EMPTY, each="operator")


def measure_arithmetic(case: Case) -> Compared:
    """Compute the operator and both gradients on the device in use."""
    operator, rng = ARITHMETIC[case.operator], case.rng()
    left, away = case.values(rng, case.shape), 1.5 * case.values(rng, case.other(case.shape)) + 0.25
    if operator.takes in ("comparable", "truth", "bits"):  # some are 0, and some equal
        left, away = np.trunc(left) - 2, np.trunc(away) - 2
    else:  # no two are equal, none is 0
        left, away = _whole(left, case.dtype), _whole(away, case.dtype)
        away = np.where(np.abs(away) < 0.1, 3.0, away)
    if case.dtype == "bool":
        left, away = left % 2, away % 2
    left, right = case.layout(left, case.dtype), paddle.to_tensor(away).astype(case.dtype)
    pair = [right, left] if case.order else [left, right]
    if case.operator in ("divide", "floor_divide", "remainder"):
        pair = [paddle.where(each.abs() < 0.1, paddle.full_like(each, 3), each) if each is pair[1] else each for each in pair]

    def call(x: paddle.Tensor, y: paddle.Tensor) -> paddle.Tensor:
        if case.way == "in place":
            return getattr(x.clone(), operator.in_place)(y)
        return operator.call(x, y)

    def right_value(x: np.ndarray, y: np.ndarray) -> Right:
        value = operator.value(x, y).astype("float64")
        return value, np.abs(value) + (np.abs(x) + np.abs(y) if operator.slopes is None else 0 * value)

    def right_slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[Right]:
        assert operator.slopes is not None
        slopes = (weight * slope for slope in operator.slopes(*np.broadcast_arrays(x, y)))
        return [
            (summed(slope, of), summed(np.abs(slope), of) * long_sum(slope.size // of.size)) if of.size else (of, of)
            for slope, of in zip(slopes, (x, y), strict=True)
        ]

    return computed(rng, case.dtype, call, pair, right_value, right_slopes if operator.slopes else None)


def add_arithmetic_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case: shapes, value and gradients, in units of what rounding may cause."""
    add_compared(rows, case.name, found, case.dtype, (ARITHMETIC[case.operator].kernel,))


def _whole(drawn: np.ndarray, dtype: str) -> np.ndarray:
    return np.trunc(drawn) if dtype in INTEGERS else drawn
