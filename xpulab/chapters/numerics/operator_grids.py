"""Operators on grids: each with every pair of type, layout, shape, values and attributes, forward and backward, against numpy.

    check.grid("operators.reductions", REDUCTIONS, one_by_one(measure), add_row, level=level, seed=seed, means=...)

Reference implementation: formulas in double precision on the very numbers that the tensor holds. The gradient is that of
sum(result * weight) with random weights, so that a gradient in a wrong place or order is another gradient.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared import precision
from xpulab.chapters.shared.missing_kernels import lacked, undeclared
from xpulab.checks.compare import first_line
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

Axis = Any
"""An axis, several axes, or None for all."""


@dataclass(frozen=True)
class Operator:
    """One operator and its formulas in double precision: of an exact input x [any shape], an axis and the result's weight.

    call: Paddle's function of x, axis and keepdim. value: the result, with reduced axes kept. slope: the gradient of
    sum(value * weight), of the shape of x. terms: for each result how large the terms are that rounding may change.
    kernels: Paddle's kernels of it. has_integers: whether it takes integers, without a gradient then.
    """

    call: Callable[[paddle.Tensor, Axis, bool], paddle.Tensor]
    value: Callable[[np.ndarray, Axis], np.ndarray]
    slope: Callable[[np.ndarray, Axis, np.ndarray], np.ndarray]
    terms: Callable[[np.ndarray, Axis], np.ndarray]
    kernels: tuple[str, ...]
    has_integers: bool = False


def _sum(x: np.ndarray, axis: Axis) -> np.ndarray:
    return x.sum(axis=axis, keepdims=True)


def _count(x: np.ndarray, axis: Axis) -> int:
    return max(1, x.size // max(1, _sum(x, axis).size))


def _largest(x: np.ndarray, axis: Axis) -> np.ndarray:
    return x.max(axis=axis, keepdims=True)


def _shared(weight: np.ndarray, is_chosen: np.ndarray, axis: Axis) -> np.ndarray:
    """The weight, in equal parts for all elements that are chosen: Paddle shares the gradient of an extreme among equals."""
    return weight * is_chosen / _sum(is_chosen * 1.0, axis)


def long_sum(terms: int) -> float:
    """By how much the error of a sum of so many terms may be larger than that of a short one."""
    return max(1.0, terms**0.5 / 4)


def _softmax(x: np.ndarray, axis: Axis) -> np.ndarray:
    powers = np.exp(x - _largest(x, axis))
    return powers / _sum(powers, axis)


def _norm(x: np.ndarray, axis: Axis) -> np.ndarray:
    return np.sqrt(_sum(x**2, axis))


def _others(x: np.ndarray, axis: Axis) -> np.ndarray:
    """For each element the product of the others along the axes; no element may be 0."""
    return np.prod(x, axis=axis, keepdims=True) / x


def _steepness(x: np.ndarray, axis: Axis) -> np.ndarray:
    return 4 + 4 * (_largest(x, axis) - x)


REDUCING = {
    "sum": Operator(
        lambda x, axis, keepdim: x.sum(axis=axis, keepdim=keepdim),
        _sum,
        lambda x, axis, weight: weight + 0 * x,
        lambda x, axis: _sum(np.abs(x), axis),
        ("sum", "sum_grad"),
        has_integers=True,
    ),
    "mean": Operator(
        lambda x, axis, keepdim: x.mean(axis=axis, keepdim=keepdim),
        lambda x, axis: _sum(x, axis) / _count(x, axis),
        lambda x, axis, weight: weight / _count(x, axis) + 0 * x,
        lambda x, axis: _sum(np.abs(x), axis) / _count(x, axis),
        ("mean", "mean_grad"),
    ),
    "max": Operator(
        lambda x, axis, keepdim: x.max(axis=axis, keepdim=keepdim),
        _largest,
        lambda x, axis, weight: _shared(weight, x == _largest(x, axis), axis),
        lambda x, axis: 0 * _largest(x, axis),
        ("max", "max_grad"),
        has_integers=True,
    ),
    "min": Operator(
        lambda x, axis, keepdim: x.min(axis=axis, keepdim=keepdim),
        lambda x, axis: x.min(axis=axis, keepdims=True),
        lambda x, axis, weight: _shared(weight, x == x.min(axis=axis, keepdims=True), axis),
        lambda x, axis: 0 * _largest(x, axis),
        ("min", "min_grad"),
        has_integers=True,
    ),
    "prod": Operator(
        lambda x, axis, keepdim: x.prod(axis=axis, keepdim=keepdim),
        lambda x, axis: np.prod(x, axis=axis, keepdims=True),
        lambda x, axis, weight: weight * _others(x, axis),
        lambda x, axis: _count(x, axis) * np.abs(np.prod(x, axis=axis, keepdims=True)),
        ("prod", "prod_grad"),
    ),
    "logsumexp": Operator(
        lambda x, axis, keepdim: paddle.logsumexp(x, axis=axis, keepdim=keepdim),
        lambda x, axis: _largest(x, axis) + np.log(_sum(np.exp(x - _largest(x, axis)), axis)),
        lambda x, axis, weight: weight * _softmax(x, axis),
        lambda x, axis: 4 + np.abs(_largest(x, axis)),
        ("logsumexp", "logsumexp_grad"),
    ),
    "norm": Operator(
        lambda x, axis, keepdim: paddle.linalg.norm(x, p=2, axis=axis, keepdim=keepdim),
        _norm,
        lambda x, axis, weight: weight * x / (_norm(x, axis) + float(np.float32(1e-12))),  # Paddle's epsilon, in its type
        lambda x, axis: 4 * _norm(x, axis),
        ("p_norm", "p_norm_grad"),
    ),
}
"""Operators that make one number of an axis, of several or of all."""

ALONG = {
    "softmax": Operator(
        lambda x, axis, keepdim: F.softmax(x, axis=axis),
        _softmax,
        lambda x, axis, weight: _softmax(x, axis) * (weight - _sum(weight * _softmax(x, axis), axis)),
        lambda x, axis: _steepness(x, axis) * _softmax(x, axis),
        ("softmax", "softmax_grad"),
    ),
    "log_softmax": Operator(
        lambda x, axis, keepdim: F.log_softmax(x, axis=axis),
        lambda x, axis: x - REDUCING["logsumexp"].value(x, axis),
        lambda x, axis, weight: weight - _softmax(x, axis) * _sum(weight, axis),
        lambda x, axis: 4 + np.abs(_largest(x, axis)) + np.abs(x),
        ("log_softmax", "log_softmax_grad"),
    ),
    "cumsum": Operator(
        lambda x, axis, keepdim: paddle.cumsum(x, axis=axis),
        lambda x, axis: np.cumsum(x, axis=axis),
        lambda x, axis, weight: np.flip(np.cumsum(np.flip(weight, axis), axis=axis), axis),
        lambda x, axis: np.cumsum(np.abs(x), axis=axis),
        ("cumsum", "cumsum_grad"),
        has_integers=True,
    ),
}
"""Operators along one axis, whose results have the shape of the input."""

OPERATORS: Mapping[str, Operator] = REDUCING | ALONG

INTEGERS = ("int64", "int32")
SHAPES = ((6, 5), (1,), (), (3, 4, 5), (0, 4), (33, 1), (127,), (2, 1025), (4, 1, 64))
"""Rows and columns; one element; no axis; three axes; no element; one column; 2^7 - 1; a long axis; a broad one."""

EMPTY = {"shape": ["(0, 4)"]}
"""A case without elements says nothing about values, layouts and types."""

VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "near zero": lambda rng, shape: 1e-3 * rng.standard_normal(shape),
    "near one": lambda rng, shape: 1 + 2.0**-8 * rng.integers(-8, 8, shape),
    "a large mean": lambda rng, shape: 500 + rng.standard_normal(shape),
    "negative": lambda rng, shape: -1 - np.abs(rng.standard_normal(shape)),
    "ties": lambda rng, shape: rng.integers(1, 4, shape).astype("float64"),
}


def far_apart(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers as the logits of a model that is sure."""
    return 100 * rng.standard_normal(shape)


_LEAST = 1e-25
"""What is smaller counts as 0, as the exponentials of numbers far below the largest: float32 ends at 1e-38."""


def _contiguous(array: np.ndarray, dtype: Any) -> paddle.Tensor:
    return paddle.to_tensor(array).astype(dtype)


def _transposed(array: np.ndarray, dtype: str) -> paddle.Tensor:
    return _contiguous(np.ascontiguousarray(array.T), dtype).transpose(list(range(array.ndim))[::-1])


def _offset(array: np.ndarray, dtype: str) -> paddle.Tensor:
    beside = np.full((*array.shape[:-1], 1), 77.0)
    return _contiguous(np.concatenate([beside, array, beside], axis=-1), dtype)[..., 1:-1]


def _strided(array: np.ndarray, dtype: str) -> paddle.Tensor:
    return _contiguous(np.repeat(array, 2, axis=0), dtype)[::2]


def _broadcast(array: np.ndarray, dtype: str) -> paddle.Tensor:
    return _contiguous(array[:1], dtype).expand(list(array.shape))


def _written_through(array: np.ndarray, dtype: Any) -> paddle.Tensor:
    whole = paddle.full([array.shape[0] + 2, *array.shape[1:]], 77, dtype=dtype)
    whole[1:-1] = _contiguous(array, dtype)
    return whole[1:-1]


LAYOUTS = {
    "contiguous": _contiguous,
    "transposed": _transposed,
    "sliced with an offset": _offset,
    "strided": _strided,
    "broadcast": _broadcast,
    "written through a view": _written_through,
}
"""By name how a tensor is made of an array and a type; a broadcast one repeats the array's first row."""

RULES: dict[str, Callable[..., bool]] = {
    "a tensor without axes has no layout": lambda shape, layout: not shape and layout is not _contiguous,
    "one axis cannot be transposed": lambda shape, layout: len(shape) < 2 and layout is _transposed,
    "an empty tensor has no row to repeat": lambda shape, layout: 0 in shape and layout is _broadcast,
    "a number has no axis 0 and no last one": lambda shape, axis: not shape and axis is not None,
    "two axes need two": lambda shape, axis: isinstance(axis, tuple) and len(shape) < 2,
    "numpy has no largest, no mean and no norm of nothing": lambda operator, shape: (
        0 in shape and operator not in ("sum", "cumsum")
    ),
    "a norm over two axes is that of a matrix": lambda operator, axis: operator == "norm" and isinstance(axis, tuple),
    "integers have sums and extremes": lambda operator, dtype: dtype in INTEGERS and not OPERATORS[operator].has_integers,
    "integers are ties, or negative": lambda dtype, values: (
        dtype in INTEGERS and values not in (VALUES["ties"], VALUES["negative"])
    ),
    "products of many numbers leave the type": lambda operator, shape, values: (
        operator == "prod" and (math.prod(shape) > 64 or values in (VALUES["a large mean"], VALUES["near zero"], far_apart))
    ),
}


def reductions(types: Sequence[str]) -> Grid:
    """The grid of operators that reduce axes. types: the floating types that the device has."""
    axes = {**_axes(REDUCING, types), "axis": (None, 0, -1, (0, -1)), "keepdim": (False, True)}
    return Grid(axes, _rules(axes), EMPTY, each="operator")


def along_an_axis(types: Sequence[str]) -> Grid:
    """The grid of operators along one axis. types: the floating types that the device has."""
    axes = {**_axes(ALONG, types), "axis": (-1, 0)}
    axes["shape"] = [shape for shape in SHAPES if shape]
    return Grid(axes, _rules(axes), EMPTY, each="operator")


def _axes(operators: Mapping[str, Operator], types: Sequence[str]) -> dict[str, Any]:
    return {
        "operator": tuple(operators),
        "dtype": (*types, *INTEGERS),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": {**VALUES, "far apart": far_apart},
    }


def _rules(axes: Mapping[str, Any]) -> dict[str, Callable[..., bool]]:
    return {reason: rule for reason, rule in RULES.items() if set(inspect.signature(rule).parameters) <= set(axes)}


@dataclass(frozen=True)
class Compared:
    """What Paddle computed beside what is right: the result, then the gradients of the inputs; arrays in double precision.

    terms: of each how large the terms are that rounding may change.
    """

    found: list[np.ndarray]
    right: list[np.ndarray]
    terms: list[np.ndarray]


Right = tuple[np.ndarray, np.ndarray]
"""What is right, and its terms."""


def computed(
    rng: np.random.Generator,
    dtype: str,
    call: Callable[..., paddle.Tensor],
    given: Sequence[paddle.Tensor],
    value: Callable[..., Right],
    slopes: Callable[..., Sequence[Right]] | None,
    frozen: Collection[int] = (),
) -> Compared:
    """Call an operator on the device in use, and its gradient, beside the formulas.

    value: takes the exact inputs. slopes: takes the weight of the result and the exact inputs, returns each gradient; None
    for an operator without gradients. Integers have none either. frozen: the places of inputs that want no gradient.
    """
    tensors = [tensor.detach() for tensor in given]
    exact = [tensor.astype("float64").numpy() for tensor in tensors]
    has_slopes = slopes is not None and dtype not in INTEGERS
    for place, tensor in enumerate(tensors):
        tensor.stop_gradient = not has_slopes or place in frozen
    result = call(*tensors)
    found, right = [result], [value(*exact)]
    if slopes is not None and has_slopes:
        weight = paddle.to_tensor(rng.uniform(0.5, 1.5, result.shape)).astype(result.dtype)
        found += paddle.grad([result], [tensor for tensor in tensors if not tensor.stop_gradient], [weight])
        every = slopes(weight.astype("float64").numpy(), *exact)
        right += [each for place, each in enumerate(every) if place not in frozen]
    arrays = [tensor.astype("float64").numpy() for tensor in found]
    return Compared(arrays, [each for each, _ in right], [terms for _, terms in right])


def summed(gradient: np.ndarray, of: np.ndarray) -> np.ndarray:
    """The gradient of what was broadcast: the sum over the axes that it was repeated along."""
    summed = gradient.sum(axis=tuple(range(gradient.ndim - of.ndim)))
    return summed.sum(axis=tuple(axis for axis, size in enumerate(of.shape) if size == 1), keepdims=True)


def add_compared(
    rows: Table,
    name: str,
    found: Compared | Exception,
    dtype: str,
    kernels: Sequence[str],
    kept: int | None = None,
    composed: bool = False,
) -> None:
    """Add a row: shapes, value and gradients, in units of what rounding may cause; the control is a quarter larger.

    An error is a skipped row where the device is known to lack one of these kernels for the type, else a red one.
    kept: the bits that the products of the device keep, where they are fewer than the type has. composed: the operator is made
    of several, each of which rounds its result to the type, as gradients are.
    """
    if isinstance(found, Exception):
        if reason := next(filter(None, (lacked(kernel, dtype) for kernel in kernels)), ""):
            rows.skip(name, reason)
        else:
            rows.equal(name, undeclared(first_line(found), kernels[0], dtype), "no error", control="another error")
        return
    shapes, wanted = ([list(each.shape) for each in arrays] for arrays in (found.found, found.right))
    if shapes != wanted or not any(each.size for each in found.right):  # an empty array equals nothing: shapes are compared
        rows.equal(name, shapes, wanted, control=[[*shape, 2] for shape in wanted])
        return
    compared = zip(found.found, found.right, found.terms, strict=True)
    parts = [_in_units(*each, dtype, kept, composed or place > 0) for place, each in enumerate(compared)]
    if dtype in precision.HALVES and np.isinf(found.found[0]).any() and not np.isinf(parts[0][0]).any():
        parts = parts[:1]  # the result leaves the type, as it must: it has no gradient
    got, right = (np.concatenate([part[place].ravel() for part in parts]) for place in range(2))
    rows.close(name, got, right, atol=1.0, control=right + np.copysign(0.25 * np.abs(right) + 8, right))


def _in_units(
    found: np.ndarray, right: np.ndarray, terms: np.ndarray, dtype: str, kept: int | None, composed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """What was found and what is right, in units of what rounding may cause; numbers beyond the type must be infinite."""
    if dtype in (*INTEGERS, "bool"):
        return 4 * found, 4 * right
    least = precision.LEAST.get(dtype, _LEAST)
    if dtype in precision.HALVES and composed:  # each term is uncertain by the last bit of the type, near 0 too
        kept, least = min(kept or precision.BITS["float64"], precision.BITS[dtype] + 3), 8 * least
    unit = precision.tolerance(right, np.broadcast_to(terms, right.shape), dtype, kept) + least
    is_beyond = (np.abs(right) > precision.LARGEST.get(dtype, math.inf)) & (found == np.copysign(math.inf, right))
    return np.where(is_beyond, right, found) / unit, right / unit


def measure(case: Case) -> Compared:
    """Compute an operator and its gradient on the device in use."""
    operator, rng, keepdim = OPERATORS[case.operator], case.rng(), getattr(case, "keepdim", True)
    drawn = case.values(rng, case.shape)
    tensor = case.layout(np.trunc(drawn) if case.dtype in INTEGERS else drawn, case.dtype)

    def value(x: np.ndarray) -> Right:
        shape = np.sum(x, axis=case.axis, keepdims=keepdim).shape if case.operator in REDUCING else x.shape
        terms = operator.terms(x, case.axis) * long_sum(_count(x, case.axis))
        return operator.value(x, case.axis).reshape(shape), terms.reshape(shape)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        if not x.size:
            return [(x, x)]
        weight = weight.reshape(operator.value(x, case.axis).shape)
        slope = operator.slope(x, case.axis, weight)
        longer = long_sum(_count(x, case.axis))
        if case.operator == "cumsum":
            return [(slope, np.broadcast_to(longer * _sum(np.abs(weight), case.axis), slope.shape))]
        steep = longer * (_steepness(x, case.axis) + np.abs(x))
        if case.dtype in precision.LEAST and case.operator in ("prod", "norm"):  # made of a result that is rounded near 0
            least = precision.LEAST[case.dtype]
            steep = steep + least * 2.0 ** precision.BITS[case.dtype] / np.maximum(np.abs(operator.value(x, case.axis)), least)
        return [(slope, steep * (np.abs(slope) + np.abs(weight).mean() * (case.operator in ALONG)))]

    return computed(rng, case.dtype, lambda x: operator.call(x, case.axis, keepdim), [tensor], value, slopes)


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case of reductions or along_an_axis."""
    add_compared(rows, case.name, found, case.dtype, OPERATORS[case.operator].kernels)
