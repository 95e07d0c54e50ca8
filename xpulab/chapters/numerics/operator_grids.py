"""Operators on grids: each with every pair of type, layout, shape, values and attributes, forward and backward, against numpy.

    check.grid("numerics.functions", functions(claimed), *RUN_FUNCTIONS, level=level, seed=seed, means=...)

Here are the values of all grids of this chapter, and the grids of functions of one number, of arithmetic, and of operators
along axes. layer_grids has those of products, norms, losses and attention. Formulas: xpulab.reference.operators.
"""

from __future__ import annotations

import math
import operator as of_python
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, INTEGERS, LAYOUTS, OF_LAYOUTS, SHAPES, Right, Rules, computed
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import BITS, LEAST, long_sum
from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS, count, steepness, summed, total

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
    further: Rules = {
        **interesting.RULES,
        "the function is of numbers above 0": lambda function, values: (
            FUNCTIONS[function].is_of_positives and values in interesting.WITH_ZEROS
        ),
    }
    return Grid(axes, rules, EMPTY, each="function").with_further(interesting.OF_NUMBERS, further)


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
    return computed(rng, case.dtype, call, [case.layout.tensor(drawn, case.dtype)], value, slopes)


RUN_FUNCTIONS = one_by_one(_measure_function), add_row_of(_needs("function"))

# ------------------------------------------------------------------------------------------------------------- arithmetic

_PAIR_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    **{"==": of_python.eq, "!=": of_python.ne, "<": of_python.lt, "<=": of_python.le, ">": of_python.gt, ">=": of_python.ge},
    "not (x or y)": lambda x, y: paddle.logical_not(paddle.logical_or(x, y)),
    "not (x ^ y)": lambda x, y: paddle.bitwise_not(paddle.bitwise_xor(x, y)),
}

TAKEN = {
    "numbers": ("floats", "integers"),
    "floats": ("floats",),
    "bits": ("integers", "bool"),
    "comparable": ("floats", "integers", "bool"),
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


MEMORIES: dict[str, Callable[[Callable[[np.ndarray], Any], np.ndarray, Any], tuple[Any, Any]]] = {
    "one for each": lambda tensor, left, second: (tensor(left), second),
    "the same tensor": lambda tensor, left, second: (tensor(left),) * 2,
    "backwards in the same": lambda tensor, left, second: (lambda first: (first, first[::-1]))(tensor(left)),
    "one row further": lambda tensor, left, second: (lambda whole: (whole[:-1], whole[1:]))(tensor(np.r_[left, left[-1:]])),
}
"""By name the two tensors of what makes a tensor, the first one's elements, and a second one: views of one memory, or two."""

DIVIDING = ("divide", "floor_divide", "remainder")


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
        "two tensors of one memory have one shape with rows": lambda shape, other, memory: (
            memory is not MEMORIES["one for each"]
            and (not 0 < len(shape) < 7 or 0 in shape or other is not OTHERS["same shape"])
        ),
        "what divides has no 0, and what is written in place is read nowhere else": lambda operator, way, memory: (
            memory is not MEMORIES["one for each"] and (way == "in place" or operator in DIVIDING)
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
        "memory": MEMORIES,
        "way": ("function", "in place"),
        "frozen": {"nothing": (), "first": (0,), "second": (1,)},
    }
    further: Rules = {
        **interesting.RULES,
        **interesting.NO_MASKED_INTEGERS,
        "Paddle slices one memory of at most six axes": lambda shape, memory: (
            len(shape) > 6 and memory is not MEMORIES["one for each"]
        ),
        "only what compares takes what is not finite": lambda operator, dtype, values: (
            values in interesting.NOT_FINITE.values()
            and (dtype == "bool" or operator not in ("maximum", "minimum", "==", "!=", "<", "<=", ">", ">="))
        ),
    }
    return Grid(axes, rules, EMPTY, each="operator").with_further(interesting.OF_ENDS, further)


def _measure_arithmetic(case: Case) -> Compared:
    pair, rng = PAIRS[case.operator], case.rng()
    left, away = case.values(rng, case.shape), 1.5 * case.values(rng, case.other(case.shape)) + 0.25
    if pair.takes == "comparable":  # some are 0, and some equal
        left, away = np.trunc(left) - 2, np.trunc(away) - 2
    else:  # no two are equal, none is 0
        left, away = (np.trunc(each) if case.dtype in INTEGERS else each for each in (left, away))
        away = np.where(np.abs(away) < 0.1, 3.0, away)
    if case.dtype == "bool":
        left, away = left % 2, away % 2
    second = LAYOUTS["contiguous"].tensor(away, case.dtype)
    first, second = case.memory(partial(case.layout.tensor, dtype=case.dtype), left, second)
    given = [second, first] if case.order else [first, second]
    if case.operator in DIVIDING:
        given[1] = paddle.where(given[1].abs() < 0.1, paddle.full_like(given[1], 3), given[1])
    call = _PAIR_CALLS.get(case.operator) or _function(case.operator)

    def value(x: np.ndarray, y: np.ndarray) -> Right:
        right = np.asarray(pair.value(x, y), "float64")
        inner = np.abs(x * pair.terms(x, y)[0]) if pair.terms else 0 * right  # of a function of x within it
        return right, np.abs(right) + (np.abs(x) + np.abs(y) if pair.slopes is None else inner)

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
        (lambda x, y: getattr(x.clone(), f"{case.operator}_")(y)) if case.way == "in place" else call,
        given,
        value,
        slopes if pair.slopes else None,
        case.frozen,
    )


RUN_ARITHMETIC = one_by_one(_measure_arithmetic), add_row_of(_needs("operator"))

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
    "only cumsum takes all axes as one": lambda operator, axis: (
        axis is None and operator != "cumsum" and not AXES[operator].reduces
    ),
    "integers have sums and extremes": lambda operator, dtype: dtype in INTEGERS and not AXES[operator].has_integers,
    "integers are ties, or negative": lambda dtype, values: (
        dtype in INTEGERS and values not in (VALUES["ties"], VALUES["negative"])
    ),
    "products of many numbers leave the type": lambda operator, shape, values: (
        operator == "prod"
        and (math.prod(shape) > 64 or values in (*chosen("a large mean", "near zero", "far apart").values(),))
    ),
}


_FURTHER: Rules = {
    **interesting.RULES,
    **interesting.OF_NOTHING,
    **interesting.NO_MASKED_INTEGERS,
    "the slope of a product has no zero": lambda operator, values: operator == "prod" and values in interesting.WITH_ZEROS,
    "Paddle 3.3.1 on the CPU takes 25 s for the gradient of the largest of 60,000 numbers": lambda operator, shape: (
        operator in ("max", "min") and math.prod(shape) > 4096
    ),
    "Paddle 3.3.1 on the CPU takes 8 s for log_softmax along 65,000 numbers": lambda operator, shape: (
        operator == "log_softmax" and math.prod(shape) > 1 << 15 and max(shape) > 4097
    ),
    "logsumexp takes at most four axes": lambda operator, shape: operator == "logsumexp" and len(shape) > 4,
    "equal terms of a long sum are rounded alike": lambda operator, shape, layout: (
        operator in ("sum", "mean", "cumsum", "norm") and layout in interesting.REPEATED and math.prod(shape) > 513
    ),
    "equal numbers of a long running sum are rounded alike": lambda operator, shape, axis, values: (
        operator == "cumsum" and axis is None and math.prod(shape) > 4097 and values is not VALUES["normal"]
    ),
    "equal exponentials of a long sum are rounded alike": lambda operator, shape, values: (
        operator in ("softmax", "log_softmax", "logsumexp")
        and max(shape, default=0) > 1 << 15
        and values is not VALUES["normal"]
    ),
    "only extremes, and of masked numbers exponentials, take what is not finite": lambda operator, values: (
        values in interesting.NOT_FINITE.values()
        and operator not in ("max", "min")
        and not (values is interesting.NOT_FINITE["masked"] and operator == "logsumexp")  # a row of -inf has no softmax
        and not (values is interesting.NOT_FINITE["masked in part"] and operator in ("logsumexp", "softmax", "log_softmax"))
    ),
}


def reductions(types: Sequence[str]) -> Grid:
    """The grid of operators that reduce axes. types: the floating types that the device has."""
    return _along(types, True, {"shape": SHAPES, "axis": (None, 0, -1, (0, -1)), "keepdim": (False, True)})


def along_an_axis(types: Sequence[str]) -> Grid:
    """The grid of operators along one axis. types: the floating types that the device has."""
    return _along(types, False, {"shape": [shape for shape in SHAPES if shape], "axis": (-1, 0, None)})


def _along(types: Sequence[str], reduces: bool, others: dict[str, Any]) -> Grid:
    axes: dict[str, Any] = {
        "operator": tuple(name for name, each in AXES.items() if each.reduces == reduces),
        "dtype": (*types, *INTEGERS),
        "layout": LAYOUTS,
        "shape": (),
        "values": {**VALUES, **chosen("far apart")},
        **others,
    }
    return Grid(axes, _RULES_OF_AXES, EMPTY, each="operator").with_further(interesting.OF_ENDS, _FURTHER)


def _measure_along(case: Case) -> Compared:
    along, rng, keepdim = AXES[case.operator], case.rng(), getattr(case, "keepdim", True)
    drawn = case.values(rng, case.shape)
    tensor = case.layout.tensor(drawn, case.dtype)

    def value(x: np.ndarray) -> Right:
        right, terms = along.value(x, case.axis), along.terms(x, case.axis) * long_sum(count(x, case.axis))
        shape = np.sum(x, axis=case.axis, keepdims=keepdim).shape if along.reduces else right.shape
        return right.reshape(shape), terms.reshape(shape)

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
