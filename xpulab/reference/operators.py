"""Operators in double precision, each once: formula, derivatives, and how large the terms are that rounding may change.

    FUNCTIONS["gelu"].value(x), PAIRS["multiply"].slopes(x, y), AXES["softmax"].slope(x, axis, weight)

Chapter 17 compares Paddle with them on grids, `xpulab shapes` the operators of a script; bounds.py has the tolerance.
Arrays are float64, as a tensor holds them. Source: the definitions of the operators; derivatives by the chain rule, compared
with finite differences in tests/reference/test_operators.py. Paddle's own conventions are named where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Axis = Any
"""An axis, several axes, or None for all."""

erf = np.vectorize(math.erf, otypes=["float64"])


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)), without an overflow."""
    low = np.exp(np.minimum(x, 0))
    return np.where(np.asarray(x) < 0, low / (1 + low), 1 / (1 + np.exp(-np.maximum(x, 0))))


# --------------------------------------------------------------------------------------------------------- of each element


@dataclass(frozen=True)
class Function:
    """A function of one number.

    value, slope: the function and its derivative. kernel: Paddle's name of it. is_of_positives: whether it is only defined for
    numbers above 0. grows: whether large numbers leave the type.
    """

    value: Callable[[Any], Any]
    slope: Callable[[Any], Any]
    kernel: str
    is_of_positives: bool = False
    grows: bool = False


def _bell(x: Any) -> Any:
    return np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def _tangent(x: Any) -> Any:
    """The hyperbolic tangent of gelu's approximation."""
    return np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def _slope_of_gelu_tanh(x: Any) -> Any:
    inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    return (1 + _tangent(x)) / 2 + x / 2 * (1 - _tangent(x) ** 2) * inner


FUNCTIONS = {
    "exp": Function(np.exp, np.exp, "exp", grows=True),
    "log": Function(np.log, lambda x: 1 / x, "log", is_of_positives=True),
    "log1p": Function(np.log1p, lambda x: 1 / (1 + x), "log1p", is_of_positives=True),
    "expm1": Function(np.expm1, np.exp, "expm1", grows=True),
    "sqrt": Function(np.sqrt, lambda x: 0.5 / np.sqrt(x), "sqrt", is_of_positives=True),
    "rsqrt": Function(lambda x: x**-0.5, lambda x: -0.5 * x**-1.5, "rsqrt", is_of_positives=True),
    "reciprocal": Function(lambda x: 1 / x, lambda x: -1 / x**2, "reciprocal", is_of_positives=True),
    "square": Function(np.square, lambda x: 2 * x, "square"),
    "pow 2": Function(np.square, lambda x: 2 * x, "pow"),
    "pow 3": Function(lambda x: x**3, lambda x: 3 * x**2, "pow"),
    "scale": Function(lambda x: 0.5 * x + 3, lambda x: 0.5 + 0 * x, "scale"),
    "clip": Function(lambda x: np.clip(x, -0.75, 1.25), lambda x: 1.0 * (np.abs(x - 0.25) <= 1), "clip"),
    "abs": Function(np.abs, np.sign, "abs"),
    "sin": Function(np.sin, np.cos, "sin"),
    "cos": Function(np.cos, lambda x: -np.sin(x), "cos"),
    "tanh": Function(np.tanh, lambda x: 1 - np.tanh(x) ** 2, "tanh"),
    "erf": Function(erf, lambda x: 2 * _bell(math.sqrt(2) * x) * math.sqrt(2), "erf"),
    "sigmoid": Function(sigmoid, lambda x: sigmoid(x) * sigmoid(-x), "sigmoid"),
    "log_sigmoid": Function(lambda x: -np.logaddexp(0, -x), lambda x: sigmoid(-x), "logsigmoid"),
    "softplus": Function(lambda x: np.logaddexp(0, x), sigmoid, "softplus"),
    "relu": Function(lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, "relu"),
    "silu": Function(lambda x: x * sigmoid(x), lambda x: sigmoid(x) * (1 + x * sigmoid(-x)), "swish"),
    "gelu": Function(
        lambda x: x * (1 + erf(x / math.sqrt(2))) / 2, lambda x: (1 + erf(x / math.sqrt(2))) / 2 + x * _bell(x), "gelu"
    ),
    "gelu, approximate": Function(lambda x: x * (1 + _tangent(x)) / 2, _slope_of_gelu_tanh, "gelu"),
}
"""By name; scale is 0.5 x + 3, clip is to -0.75 and 1.25."""


@dataclass(frozen=True)
class Pair:
    """An operator of two numbers.

    value: the result. slopes: the derivatives by both, or None. kernel: Paddle's name of it.
    in_place: whether a method with "_" writes into the first tensor. takes: "numbers", "floats", "bits" (integers and bool), or
    "comparable" (numbers and bool, with zeros among them).
    terms: by how much rounding may change the derivatives, where that is more than they are. is_broadcast: else of one shape.
    """

    value: Callable[[Any, Any], Any]
    slopes: Callable[[Any, Any], tuple[Any, Any]] | None
    kernel: str
    in_place: bool = False
    takes: str = "numbers"
    terms: Callable[[Any, Any], tuple[Any, Any]] | None = None
    is_broadcast: bool = True


def _bits(operator: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Of integers the operator of their bits, of truth values, which are given as floats, that of one bit."""
    return lambda x, y: operator(*((each != 0) if each.dtype.kind == "f" else each for each in map(np.asarray, (x, y))))


def _larger(x: Any, y: Any) -> Any:
    """The gradient of the first of two numbers of which one is taken: Paddle shares it where both are equal."""
    return ((x > y) * 1.0 + (x >= y)) / 2


PAIRS = {
    "add": Pair(np.add, lambda x, y: (1 + 0 * x, 1 + 0 * y), "add", in_place=True),
    "subtract": Pair(np.subtract, lambda x, y: (1 + 0 * x, -1 + 0 * y), "subtract", in_place=True),
    "multiply": Pair(np.multiply, lambda x, y: (y, x), "multiply", in_place=True),
    "divide": Pair(np.divide, lambda x, y: (1 / y, -x / y**2), "divide", in_place=True, takes="floats"),
    "maximum": Pair(np.maximum, lambda x, y: (_larger(x, y), _larger(y, x)), "maximum"),
    "minimum": Pair(np.minimum, lambda x, y: (_larger(y, x), _larger(x, y)), "minimum"),
    "floor_divide": Pair(np.floor_divide, None, "floor_divide", in_place=True),
    "remainder": Pair(np.remainder, None, "remainder", in_place=True),
    "==": Pair(np.equal, None, "equal", takes="comparable"),
    "!=": Pair(np.not_equal, None, "not_equal", takes="comparable"),
    "<": Pair(np.less, None, "less_than"),
    "<=": Pair(np.less_equal, None, "less_equal"),
    ">": Pair(np.greater, None, "greater_than"),
    ">=": Pair(np.greater_equal, None, "greater_equal"),
    "logical_and": Pair(np.logical_and, None, "logical_and", takes="comparable"),
    "logical_or": Pair(np.logical_or, None, "logical_or", takes="comparable"),
    "logical_xor": Pair(np.logical_xor, None, "logical_xor", takes="comparable"),
    "not (x or y)": Pair(lambda x, y: np.logical_not(np.logical_or(x, y)), None, "logical_or", takes="comparable"),
    "bitwise_and": Pair(_bits(np.bitwise_and), None, "bitwise_and", in_place=True, takes="bits"),
    "bitwise_or": Pair(_bits(np.bitwise_or), None, "bitwise_or", in_place=True, takes="bits"),
    "bitwise_xor": Pair(_bits(np.bitwise_xor), None, "bitwise_xor", in_place=True, takes="bits"),
    "not (x ^ y)": Pair(_bits(lambda x, y: ~(x ^ y)), None, "bitwise_not", takes="bits"),
    "swiglu": Pair(
        lambda x, y: x * sigmoid(x) * y,
        lambda x, y: (y * sigmoid(x) * (1 + x * sigmoid(-x)), x * sigmoid(x)),
        "swiglu",
        takes="floats",
        terms=lambda x, y: (  # exp(-x) is uncertain by x, and 1 - sigmoid(x) by the last bit of 1
            np.abs(y) * sigmoid(x) * ((1 + np.abs(x) * sigmoid(-x)) ** 2 + np.minimum(np.abs(x), 8)),
            np.abs(x) * sigmoid(x) * (1 + np.abs(x) * sigmoid(-x)),
        ),
        is_broadcast=False,
    ),
}
"""By name, of x and y."""


def summed(gradient: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The gradient of what was broadcast: the sum over the axes that it was repeated along."""
    summed = gradient.sum(axis=tuple(range(gradient.ndim - of.ndim)))
    return np.asarray(summed.sum(axis=tuple(axis for axis, size in enumerate(of.shape) if size == 1), keepdims=True))


# ------------------------------------------------------------------------------------------------------------- along axes


@dataclass(frozen=True)
class AlongAxes:
    """An operator along axes, of x, an axis and the result's weight; reduced axes are kept with length 1.

    value: the result. slope: the gradient of sum(value * weight), of the shape of x. terms: for each result how large the terms
    are that rounding may change. kernel: Paddle's name of it. reduces: whether the axes are reduced.
    has_integers: whether it takes integers, without a gradient then.
    """

    value: Callable[[Any, Axis], Any]
    slope: Callable[[Any, Axis, Any], Any]
    terms: Callable[[Any, Axis], Any]
    kernel: str
    reduces: bool = True
    has_integers: bool = False


def total(x: Any, axis: Axis) -> Any:
    """The sum, with the axes kept."""
    return x.sum(axis=axis, keepdims=True)


def count(x: Any, axis: Axis) -> int:
    """How many elements are reduced to one."""
    return int(max(1, x.size // max(1, total(x, axis).size)))


def largest(x: Any, axis: Axis) -> Any:
    """The largest element, with the axes kept."""
    return x.max(axis=axis, keepdims=True)


def softmax(x: Any, axis: Axis = -1) -> Any:
    """exp(x) as a share of its sum."""
    powers = np.exp(x - largest(x, axis))
    return powers / total(powers, axis)


def log_softmax(x: Any, axis: Axis = -1) -> Any:
    """Its logarithm."""
    below = x - largest(x, axis)
    return below - np.log(total(np.exp(below), axis))


def slope_of_softmax(chances: Any, weight: Any, axis: Axis = -1) -> Any:
    """The gradient of sum(softmax(x) * weight). chances: the softmax."""
    return chances * (weight - total(weight * chances, axis))


def steepness(x: Any, axis: Axis) -> Any:
    """By how much the exponentials of softmax are uncertain."""
    return 4 + 4 * (largest(x, axis) - x)


def _shared(weight: Any, is_chosen: Any, axis: Axis) -> Any:
    """The weight, in equal parts for all elements that are chosen: Paddle shares the gradient of an extreme among equals."""
    return weight * is_chosen / total(is_chosen * 1.0, axis)


def _norm(x: Any, axis: Axis) -> Any:
    return np.sqrt(total(x**2, axis))


AXES: Mapping[str, AlongAxes] = {
    "sum": AlongAxes(total, lambda x, axis, w: w + 0 * x, lambda x, axis: total(np.abs(x), axis), "sum", has_integers=True),
    "mean": AlongAxes(
        lambda x, axis: total(x, axis) / count(x, axis),
        lambda x, axis, w: w / count(x, axis) + 0 * x,
        lambda x, axis: total(np.abs(x), axis) / count(x, axis),
        "mean",
    ),
    "max": AlongAxes(
        largest,
        lambda x, axis, w: _shared(w, x == largest(x, axis), axis),
        lambda x, axis: 0 * largest(x, axis),
        "max",
        has_integers=True,
    ),
    "min": AlongAxes(
        lambda x, axis: -largest(-x, axis),
        lambda x, axis, w: _shared(w, x == -largest(-x, axis), axis),
        lambda x, axis: 0 * largest(x, axis),
        "min",
        has_integers=True,
    ),
    "prod": AlongAxes(
        lambda x, axis: np.prod(x, axis=axis, keepdims=True),
        lambda x, axis, w: w * np.prod(x, axis=axis, keepdims=True) / x,  # no element may be 0
        lambda x, axis: count(x, axis) * np.abs(np.prod(x, axis=axis, keepdims=True)),
        "prod",
    ),
    "logsumexp": AlongAxes(
        lambda x, axis: largest(x, axis) + np.log(total(np.exp(x - np.maximum(largest(x, axis), -1e300)), axis)),
        lambda x, axis, w: w * softmax(x, axis),
        lambda x, axis: 4 + np.abs(largest(x, axis)),
        "logsumexp",
    ),
    "norm": AlongAxes(
        _norm,
        lambda x, axis, w: w * x / (_norm(x, axis) + float(np.float32(1e-12))),  # Paddle's epsilon, in its type
        lambda x, axis: 4 * _norm(x, axis),
        "p_norm",
    ),
    "softmax": AlongAxes(
        softmax,
        lambda x, axis, w: slope_of_softmax(softmax(x, axis), w, axis),
        lambda x, axis: steepness(x, axis) * softmax(x, axis),
        "softmax",
        reduces=False,
    ),
    "log_softmax": AlongAxes(
        log_softmax,
        lambda x, axis, w: w - softmax(x, axis) * total(w, axis),
        lambda x, axis: 4 + np.abs(largest(x, axis)) + np.abs(x),
        "log_softmax",
        reduces=False,
    ),
    "cumsum": AlongAxes(
        lambda x, axis: np.cumsum(x, axis=axis),
        lambda x, axis, w: np.flip(np.cumsum(np.flip(w, axis), axis=axis), axis).reshape(np.shape(x)),
        lambda x, axis: np.cumsum(np.abs(x), axis=axis),
        "cumsum",
        reduces=False,
        has_integers=True,
    ),
}
"""By name; softmax, log_softmax and cumsum have one axis."""


# ---------------------------------------------------------------------------------------------------------- of whole rows


def normalized(x: Any, axes: tuple[int, ...], epsilon: float, is_centered: bool) -> tuple[Any, Any, Any]:
    """Layer norm, or centred on 0 RMS norm, over these axes without weight and bias: the result, its spread, the mean."""
    mean = x.mean(axis=axes, keepdims=True) if is_centered else 0.0 * x.sum(axis=axes, keepdims=True)
    spread = np.sqrt(((x - mean) ** 2).mean(axis=axes, keepdims=True) + epsilon)
    return (x - mean) / spread, spread, mean


def slope_of_normalized(normal: Any, spread: Any, inner: Any, axes: tuple[int, ...], is_centered: bool) -> Any:
    """The gradient of x for this gradient `inner` of the normal numbers."""
    along = (inner * normal).mean(axis=axes, keepdims=True)
    mean = inner.mean(axis=axes, keepdims=True) if is_centered else 0 * along
    return (inner - mean - normal * along) / spread


def rotated(heads: Any, cosine: Any, sine: Any) -> Any:
    """Rotary positions: element i of the first half of a head turns with element i of the second half.

    cosine, sine: of the shape of heads, or broadcast to it. The gradient is the rotation by the opposite angle, -sine.
    """
    first, second = np.split(heads, 2, axis=-1)
    return heads * cosine + np.concatenate([-second, first], axis=-1) * sine
