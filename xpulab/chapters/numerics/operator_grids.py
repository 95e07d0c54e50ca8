"""Operators on grids: each with every pair of type, layout, shape, values and attributes, forward and backward, against numpy.

    check.grid("numerics.functions", functions(claimed), *FUNCTIONS_RUN, level=level, seed=seed, means=...)

Here are the axes that all grids of this chapter share, the one function that computes a case (`computed`), and the grids of
functions of one number, of arithmetic, and of operators along axes. layer_grids has those of products, norms, losses and
attention. Reference implementation: xpulab.reference.operators, on the very numbers that the tensor holds. The gradient is that
of sum(result * weight) with random weights, so that a gradient in a wrong place or order is another gradient.
"""

from __future__ import annotations

import math
import operator as of_python
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.incubate.nn.functional as fused
import paddle.nn.functional as F
from paddle.distributed.fleet.utils import recompute

from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import BITS, HALVES, LEAST, bound, is_beyond, long_sum
from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS, count, steepness, summed, total

INTEGERS = ("int64", "int32")

SHAPES = ((6, 5), (1,), (), (3, 4, 5), (0, 4), (33, 1), (127,), (2, 1025), (1025, 3), (4, 1, 64))
"""Rows and columns; one element; no axis; three axes; no element; one column; 2^7 - 1; a long axis; many rows; a broad one."""

EMPTY = {"shape": ["(0, 4)"]}
"""A case without elements says nothing about values, layouts and types."""

Values = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]

VALUES: dict[str, Values] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "near zero": lambda rng, shape: 1e-3 * rng.standard_normal(shape),
    "near one": lambda rng, shape: 1 + 2.0**-8 * rng.integers(-8, 8, shape),
    "a large mean": lambda rng, shape: 500 + rng.standard_normal(shape),
    "negative": lambda rng, shape: -1 - np.abs(rng.standard_normal(shape)),
    "ties": lambda rng, shape: rng.integers(1, 4, shape).astype("float64"),
}
OTHER_VALUES: dict[str, Values] = {
    "far apart": lambda rng, shape: 100 * rng.standard_normal(shape),
    "far above zero": lambda rng, shape: np.resize(rng.permutation([40.0, 1e4]), shape),
    "far below zero": lambda rng, shape: -np.resize(rng.permutation([40.0, 1e4]), shape),
}
"""As the logits of a model that is sure; where activations are the identity, and powers overflow; where they are 0."""


def chosen(*names: str) -> dict[str, Values]:
    """These of the values, by name."""
    return {name: (VALUES | OTHER_VALUES)[name] for name in names}


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

Rules = dict[str, Callable[..., bool]]

OF_LAYOUTS: Rules = {
    "a tensor without axes has no layout": lambda shape, layout: not shape and layout is not _contiguous,
    "one axis cannot be transposed": lambda shape, layout: len(shape) < 2 and layout is _transposed,
    "an empty tensor has no row to repeat": lambda shape, layout: 0 in shape and layout is _broadcast,
}

SAVED: dict[str, Callable[..., Any]] = {
    "kept": lambda call, *inputs: call(*inputs),
    "recomputed": lambda call, *inputs: recompute(lambda *given: call(*given), *inputs, use_reentrant=True),
    "recomputed without reentrant": lambda call, *inputs: recompute(lambda *given: call(*given), *inputs, use_reentrant=False),
}
"""By name how an operator is called: what it saves is kept for the backward pass, or computed again."""

Right = tuple[np.ndarray, np.ndarray]
"""What is right, and how large the terms are that rounding may change."""


def computed(
    rng: np.random.Generator,
    dtype: str,
    call: Callable[..., Any],
    given: Sequence[paddle.Tensor],
    value: Callable[..., Right],
    slopes: Callable[..., Sequence[Right]] | None,
    frozen: Collection[int] = (),
    kept: int | None = None,
    composed: bool = False,
    saved: Callable[..., Any] = SAVED["kept"],
) -> Compared:
    """Call an operator on the device in use, and its gradient, beside the formulas.

    value: takes the exact inputs. slopes: takes the weight of the result and the exact inputs, returns each gradient; None
    for an operator without gradients. Integers have none either. frozen: the places of inputs that want no gradient.
    kept, composed: as for bounds.bound. saved: of SAVED.
    """
    tensors = [tensor.detach() for tensor in given]
    exact = [tensor.astype("float64").numpy() for tensor in tensors]
    has_slopes = slopes is not None and dtype not in INTEGERS
    for place, tensor in enumerate(tensors):
        tensor.stop_gradient = not has_slopes or place in frozen
    result = saved(call, *tensors)
    found, right = [result], [value(*exact)]
    if slopes is not None and has_slopes:
        weight = paddle.to_tensor(rng.uniform(0.5, 1.5, result.shape)).astype(result.dtype)
        if saved is SAVED["kept"]:
            found += paddle.grad([result], [tensor for tensor in tensors if not tensor.stop_gradient], [weight])
        else:
            result.backward(weight)
            found += [tensor.grad for tensor in tensors if not tensor.stop_gradient]
        every = slopes(weight.astype("float64").numpy(), *exact)
        right += [slope for place, slope in enumerate(every) if place not in frozen]
    return within_bounds([tensor.astype("float64").numpy() for tensor in found], right, dtype, kept, composed)


def within_bounds(
    found: Sequence[np.ndarray], right: Sequence[Right], dtype: str, kept: int | None = None, composed: bool = False
) -> Compared:
    """The result and the gradients of an operator, each with the bound of bounds.bound; gradients are always composed.

    Numbers beyond a half type must be infinite; a result that is has no gradient.
    """
    names = ["result", *(f"gradient {place}" for place in range(1, len(right)))]
    exact = {name: each for name, (each, _) in zip(names, right, strict=True)}
    bounds = {
        name: bound(each, np.broadcast_to(terms, np.shape(each)), dtype, kept, composed or name != "result")
        for name, (each, terms) in zip(names, right, strict=True)
    }
    got = dict(zip(names, found, strict=True))
    if dtype in HALVES and all(got[name].shape == np.shape(exact[name]) for name in names):
        was_infinite = np.isinf(got["result"]).any()
        got = {name: np.where(is_beyond(got[name], exact[name], dtype), exact[name], got[name]) for name in names}
        if was_infinite and not np.isinf(got["result"]).any():
            names = ["result"]
    return Compared({name: got[name] for name in names}, {name: exact[name] for name in names}, bounds)


def _needs(kernel: str) -> Callable[[Case], list[tuple[str, str, str]]]:
    """The kernel of this axis' operator; what missing_kernels.add_row_of takes."""
    tables: dict[str, dict[str, Any]] = {"function": {**FUNCTIONS}, "operator": {**PAIRS, **AXES}}
    return lambda case: [
        (name, case.dtype, "") for name in (tables[kernel][case.labels[kernel]].kernel,) for name in (name, f"{name}_grad")
    ]


# ---------------------------------------------------------------------------------------------- functions of one number

_CALLS: dict[str, Callable[[paddle.Tensor], Any]] = {
    "pow 2": lambda x: x.pow(2),
    "pow 3": lambda x: paddle.pow(x, 3.0),
    "scale": lambda x: paddle.scale(x, 0.5, bias=3.0),
    "clip": lambda x: paddle.clip(x, -0.75, 1.25),
    "gelu, approximate": lambda x: F.gelu(x, approximate=True),
}


def _function(name: str) -> Callable[..., Any]:
    """Paddle's function of this name."""
    return getattr(paddle if hasattr(paddle, name) else F, name)


def functions(types: Sequence[str]) -> Grid:
    """The grid of functions of one number. types: the floating types that the device has."""
    large = (*chosen("far above zero", "far below zero", "a large mean").values(),)
    rules: Rules = {
        **OF_LAYOUTS,
        "large numbers leave the type": lambda function, values: FUNCTIONS[function].grows and values in large,
    }
    values = {**VALUES, **chosen("far above zero", "far below zero")}
    axes: dict[str, Any] = {"function": tuple(FUNCTIONS), "dtype": types, "layout": LAYOUTS, "shape": SHAPES, "values": values}
    return Grid(axes, rules, EMPTY, each="function")


def _measure_function(case: Case) -> Compared:
    function, rng = FUNCTIONS[case.function], case.rng()
    drawn = case.values(rng, case.shape)
    if function.is_of_positives:
        drawn = np.maximum(np.abs(drawn), LEAST.get(case.dtype, 0.0))

    def value(x: np.ndarray) -> Right:
        right = function.value(x)
        return right, np.abs(right) + np.abs(x * function.slope(x)) + np.minimum(np.abs(x), 8)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        slope = weight * function.slope(x)
        return [(slope, np.abs(slope) * (4 + np.abs(x)) + np.abs(weight) * (1 + np.minimum(np.abs(x), 8)))]

    call = _CALLS.get(case.function) or _function(case.function)
    return computed(rng, case.dtype, call, [case.layout(drawn, case.dtype)], value, slopes)


RUN_FUNCTIONS = one_by_one(_measure_function), add_row_of(_needs("function"))
"""What check.grid takes as run and add_row."""

# ------------------------------------------------------------------------------------------------------------- arithmetic

_PAIR_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{"==": of_python.eq, "!=": of_python.ne, "<": of_python.lt, "<=": of_python.le, ">": of_python.gt, ">=": of_python.ge},
    **{"&": of_python.and_, "|": of_python.or_, "^": of_python.xor, "x & ~y": lambda x, y: x & ~y},
    "not (x or y)": lambda x, y: paddle.logical_not(paddle.logical_or(x, y)),
    "fused_dropout_add, p = 0": lambda x, y: fused.fused_dropout_add(x, y, p=0.0),
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


def arithmetic(types: Sequence[str]) -> Grid:
    """The grid of operators of two tensors. types: the floating types that the device has."""
    rules: Rules = {
        **OF_LAYOUTS,
        "a number is broadcast from no row and no column": lambda shape, other: not shape
        and other in (OTHERS["row"], OTHERS["column"]),
        "some operators broadcast nothing": lambda operator, other: (
            not PAIRS[operator].is_broadcast and other is not OTHERS["same shape"]
        ),
        "operators take floating numbers, integers, bool, or some of them": lambda operator, dtype: (
            ("floats" if dtype in types else "bool" if dtype == "bool" else "integers") not in TAKEN[PAIRS[operator].takes]
        ),
        "the device has no kernel for this type": lambda operator, dtype: bool(lacked(PAIRS[operator].kernel, dtype)),
        "integers and bool are ties, or negative": lambda dtype, values: (
            dtype not in types and values not in (VALUES["ties"], VALUES["negative"])
        ),
        "nothing is written in place that has another shape, or no such method": lambda operator, way, other, order: (
            way == "in place" and (order or other is OTHERS["one more axis"] or not PAIRS[operator].in_place)
        ),
        "only what has a gradient can be frozen": lambda operator, dtype, frozen: (
            bool(frozen) and (PAIRS[operator].slopes is None or dtype not in types)
        ),
    }
    axes: dict[str, Any] = {
        "operator": tuple(PAIRS),
        "dtype": (*types, *INTEGERS, "bool"),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "other": OTHERS,
        "order": {"first, second": False, "second, first": True},
        "values": chosen("normal", "ties", "negative", "a large mean"),
        "way": ("function", "in place", "recomputed", "recomputed without reentrant"),
        "frozen": {"nothing": (), "first": (0,), "second": (1,)},
    }
    return Grid(axes, rules, EMPTY, each="operator")


def _measure_arithmetic(case: Case) -> Compared:
    pair, rng = PAIRS[case.operator], case.rng()
    left, away = case.values(rng, case.shape), 1.5 * case.values(rng, case.other(case.shape)) + 0.25
    if pair.takes in ("comparable", "truth", "bits"):  # some are 0, and some equal
        left, away = np.trunc(left) - 2, np.trunc(away) - 2
    else:  # no two are equal, none is 0
        left, away = (np.trunc(each) if case.dtype in INTEGERS else each for each in (left, away))
        away = np.where(np.abs(away) < 0.1, 3.0, away)
    if case.dtype == "bool":
        left, away = left % 2, away % 2
    first, second = case.layout(left, case.dtype), paddle.to_tensor(away).astype(case.dtype)
    given = [second, first] if case.order else [first, second]
    if case.operator in ("divide", "floor_divide", "remainder"):
        given[1] = paddle.where(given[1].abs() < 0.1, paddle.full_like(given[1], 3), given[1])
    name = {"&": "bitwise_and_", "|": "bitwise_or_", "^": "bitwise_xor_"}.get(case.operator, f"{case.operator}_")
    call = _PAIR_CALLS.get(case.operator) or _function(case.operator)

    def value(x: np.ndarray, y: np.ndarray) -> Right:
        right = np.asarray(pair.value(x, y), "float64")
        return right, np.abs(right) + (np.abs(x) + np.abs(y) if pair.slopes is None else 0 * right)

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray) -> list[Right]:
        assert pair.slopes is not None
        both = np.broadcast_arrays(x, y)
        terms = pair.terms(*both) if pair.terms else map(np.abs, pair.slopes(*both))
        return [
            (summed(weight * slope, of), summed(np.abs(weight * term), of) * long_sum(slope.size // of.size))
            if of.size
            else (of, of)
            for slope, term, of in zip(pair.slopes(*both), terms, (x, y), strict=True)
        ]

    return computed(
        rng,
        case.dtype,
        (lambda x, y: getattr(x.clone(), name)(y)) if case.way == "in place" else call,
        given,
        value,
        slopes if pair.slopes else None,
        case.frozen,
        saved=SAVED.get(case.way, SAVED["kept"]) if pair.slopes and case.dtype in BITS else SAVED["kept"],
    )


RUN_ARITHMETIC = one_by_one(_measure_arithmetic), add_row_of(_needs("operator"))
"""What check.grid takes as run and add_row."""

# ------------------------------------------------------------------------------------------------------------- along axes

_ALONG: dict[str, Callable[..., Any]] = {
    **{name: partial(lambda name, x, axis, keepdim: getattr(x, name)(axis=axis, keepdim=keepdim), name) for name in AXES},
    "logsumexp": lambda x, axis, keepdim: paddle.logsumexp(x, axis=axis, keepdim=keepdim),
    "norm": lambda x, axis, keepdim: paddle.linalg.norm(x, p=2, axis=axis, keepdim=keepdim),
    "softmax": lambda x, axis, keepdim: F.softmax(x, axis=axis),
    "log_softmax": lambda x, axis, keepdim: F.log_softmax(x, axis=axis),
    "cumsum": lambda x, axis, keepdim: paddle.cumsum(x, axis=axis),
}

_RULES_OF_AXES: Rules = {
    **OF_LAYOUTS,
    "a number has no axis 0 and no last one": lambda shape, axis: not shape and axis is not None,
    "two axes need two": lambda shape, axis: isinstance(axis, tuple) and len(shape) < 2,
    "numpy has no largest, no mean and no norm of nothing": lambda operator, shape, axis: (
        0 in shape and axis != -1 and operator not in ("sum", "cumsum")
    ),
    "a norm over two axes is that of a matrix": lambda operator, axis: operator == "norm" and isinstance(axis, tuple),
    "integers have sums and extremes": lambda operator, dtype: dtype in INTEGERS and not AXES[operator].has_integers,
    "integers are ties, or negative": lambda dtype, values: (
        dtype in INTEGERS and values not in (VALUES["ties"], VALUES["negative"])
    ),
    "equal terms of a long sum are rounded alike": lambda layout, shape: layout is _broadcast and shape[:1] == (1025,),
    "products of many numbers leave the type": lambda operator, shape, values: (
        operator == "prod"
        and (math.prod(shape) > 64 or values in (*chosen("a large mean", "near zero", "far apart").values(),))
    ),
}


def reductions(types: Sequence[str]) -> Grid:
    """The grid of operators that reduce axes. types: the floating types that the device has."""
    return _along(types, True, {"shape": SHAPES, "axis": (None, 0, -1, (0, -1)), "keepdim": (False, True)})


def along_an_axis(types: Sequence[str]) -> Grid:
    """The grid of operators along one axis. types: the floating types that the device has."""
    return _along(types, False, {"shape": [shape for shape in SHAPES if shape], "axis": (-1, 0)})


def _along(types: Sequence[str], reduces: bool, others: dict[str, Any]) -> Grid:
    axes: dict[str, Any] = {
        "operator": tuple(name for name, each in AXES.items() if each.reduces == reduces),
        "dtype": (*types, *INTEGERS),
        "layout": LAYOUTS,
        "shape": (),
        "values": {**VALUES, **chosen("far apart")},
        **others,
    }
    return Grid(axes, _RULES_OF_AXES, EMPTY, each="operator")


def _measure_along(case: Case) -> Compared:
    along, rng, keepdim = AXES[case.operator], case.rng(), getattr(case, "keepdim", True)
    drawn = case.values(rng, case.shape)
    tensor = case.layout(np.trunc(drawn) if case.dtype in INTEGERS else drawn, case.dtype)

    def value(x: np.ndarray) -> Right:
        shape = np.sum(x, axis=case.axis, keepdims=keepdim).shape if along.reduces else x.shape
        terms = along.terms(x, case.axis) * long_sum(count(x, case.axis))
        return along.value(x, case.axis).reshape(shape), terms.reshape(shape)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        if not x.size:
            return [(x, x)]
        result = along.value(x, case.axis)
        weight = weight.reshape(result.shape)
        slope, longer = along.slope(x, case.axis, weight), long_sum(count(x, case.axis))
        if case.operator == "cumsum":
            return [(slope, np.broadcast_to(longer * total(np.abs(weight), case.axis), slope.shape))]
        steep = longer * (steepness(x, case.axis) + np.abs(x))
        if case.dtype in LEAST and case.operator in ("prod", "norm"):  # made of a result that is rounded near 0
            least = LEAST[case.dtype]
            steep = steep + least * 2.0 ** BITS[case.dtype] / np.maximum(np.abs(result), least)
        return [(slope, steep * (np.abs(slope) + np.abs(weight).mean() * (not along.reduces)))]

    call = _ALONG[case.operator]
    return computed(rng, case.dtype, lambda x: call(x, case.axis, keepdim), [tensor], value, slopes)


RUN_ALONG = one_by_one(_measure_along), add_row_of(_needs("operator"))
"""What check.grid takes as run and add_row, for reductions and along_an_axis."""
