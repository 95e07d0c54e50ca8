"""Operators that order numbers, on a grid: sort, argsort, topk, argmax and argmin, with gradients, beside numpy.

    check.grid("numerics.orders", orders(claimed), *RUN, level=level, seed=seed, means=...)

NaN is larger than every number, as in numpy and PyTorch. Equal numbers may stand in any order: then the elements at the
positions are compared, and that no position occurs twice. Infinite integers are the least and the largest of their type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, INTEGERS, LAYOUTS, OF_LAYOUTS, SHAPES, Rules, computed, moved
from xpulab.checks.compared import Compared, numbers
from xpulab.checks.grid import Case, Grid, one_by_one


@dataclass(frozen=True)
class Order:
    """An operator.

    call: of a tensor and the case. kernel: Paddle's name of it. gives: "values", "positions", "positions in order" (of equal
    numbers the first one first) or "one position".
    """

    call: Callable[[paddle.Tensor, Case], Any]
    kernel: str
    gives: str


def _topk(x: paddle.Tensor, case: Case) -> Any:
    return paddle.topk(x, _half(case), case.axis, largest=case.descending)


def _topk_in_no_order(x: paddle.Tensor, case: Case) -> Any:
    """The values, which have no order, sorted."""
    values = paddle.topk(x, _half(case), case.axis, largest=case.descending, sorted=False)[0]
    return paddle.sort(values, case.axis, case.descending)


def _half(case: Case) -> int:
    """How many are taken by topk."""
    return max(1, (case.shape[case.axis] if case.shape else 1) // 2)


ORDERS = {
    "sort": Order(lambda x, case: paddle.sort(x, case.axis, case.descending), "argsort", "values"),
    "argsort": Order(lambda x, case: paddle.argsort(x, case.axis, case.descending), "argsort", "positions"),
    "sort, stable": Order(lambda x, case: paddle.sort(x, case.axis, case.descending, stable=True), "argsort", "values"),
    "argsort, stable": Order(
        lambda x, case: paddle.argsort(x, case.axis, case.descending, stable=True), "argsort", "positions in order"
    ),
    "topk": Order(lambda x, case: _topk(x, case)[0], "topk", "values"),
    "topk, sorted=False": Order(_topk_in_no_order, "topk", "values"),
    "topk, positions": Order(lambda x, case: _topk(x, case)[1], "topk", "positions"),
    "argmax": Order(lambda x, case: paddle.argmax(x, case.axis), "argmax", "one position"),
    "argmin": Order(lambda x, case: paddle.argmin(x, case.axis), "argmin", "one position"),
}


def _mixed(others: Sequence[float]) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Numbers from 1 to 3, and one in four of these others."""
    return lambda rng, shape: np.where(rng.random(shape) < 0.25, rng.choice(others, shape), rng.integers(1, 4, shape))


VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "different": lambda rng, shape: rng.permutation(int(np.prod(shape))).reshape(shape) * 1.0,
    "negative": lambda rng, shape: -1.0 - rng.permutation(int(np.prod(shape))).reshape(shape),
    "in order": lambda rng, shape: np.arange(int(np.prod(shape)), dtype="float64").reshape(shape),
    "ties": lambda rng, shape: rng.integers(1, 4, shape) * 1.0,
    "all equal": lambda rng, shape: np.full(shape, 2.0),
    "infinite": _mixed([np.inf, -np.inf]),
    "NaN": _mixed([np.nan]),
}

_RULES: Rules = {
    **OF_LAYOUTS,
    "integers are numbers": lambda dtype, values: dtype in INTEGERS and values is VALUES["NaN"],
    "nothing has no largest": lambda operator, shape, axis: (
        0 in shape and axis != -1 and ORDERS[operator].kernel in ("argmax", "argmin", "topk")
    ),
    "argmax and argmin have a direction": lambda operator, descending: (
        ORDERS[operator].gives == "one position" and not descending
    ),
    "the device has no kernel for this type": lambda operator, dtype: bool(lacked(ORDERS[operator].kernel, dtype)),
}


def orders(types: Sequence[str]) -> Grid:
    """The grid, on the device in use. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "operator": tuple(ORDERS),
        "dtype": (*types, *INTEGERS),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "axis": (-1, 0),
        "values": VALUES,
        "descending": {"descending": True, "ascending": False},
    }
    further: Rules = {
        **interesting.RULES,
        **interesting.OF_NOTHING,
        **interesting.NO_MASKED_INTEGERS,
        "argmax and argmin refuse more than six axes": lambda operator, shape: (
            ORDERS[operator].gives == "one position" and len(shape) > 6
        ),
        "zeros of both signs may stand in any order": lambda operator, values: (
            values is interesting.VALUES["zeros of both signs"] and ORDERS[operator].gives == "values"
        ),
    }
    return Grid(axes, _RULES, EMPTY, each="operator").with_further(interesting.OF_ENDS, further)


def _measure(case: Case) -> Compared:
    """Order on the device in use: values with their gradient, or what is at the positions and how often one repeats."""
    order, rng = ORDERS[case.operator], case.rng()
    tensor = case.layout.tensor(case.values(rng, case.shape), case.dtype)
    x = np.atleast_1d(tensor.astype("float64").numpy())
    if order.gives == "one position":
        find = np.argmax if case.operator == "argmax" else np.argmin
        right = find(x, axis=case.axis).reshape(case.shape[1:] if case.axis == 0 else case.shape[:-1])
        return Compared({"position": order.call(tensor, case).numpy()}, {"position": right})
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    places = np.argsort(-ranks if case.descending else ranks, axis=case.axis, kind="stable")
    if order.kernel == "topk":
        places = np.take(places, np.arange(_half(case)), case.axis)

    def ordered(elements: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.atleast_1d(elements), places, case.axis).reshape(places.shape if case.shape else ())

    if order.gives == "values":
        value, slopes = moved(ordered)
        has_ties = len(np.unique(x)) < x.size
        return computed(rng, case.dtype, lambda given: order.call(given, case), [tensor], value, None if has_ties else slopes)
    found = np.atleast_1d(order.call(tensor, case).numpy())
    if order.gives == "positions in order":
        return Compared({"positions": found}, {"positions": places})
    repeats = np.diff(np.sort(found, axis=case.axis), axis=case.axis) == 0
    elements = {"elements": np.take_along_axis(x, found, case.axis), "repeats": repeats}
    return Compared(
        {name: numbers(each) for name, each in elements.items()},
        {"elements": numbers(np.atleast_1d(ordered(x))), "repeats": numbers(0 * repeats)},
    )


RUN = one_by_one(_measure), add_row_of(lambda case: [(ORDERS[case.operator].kernel, case.dtype, "")])
