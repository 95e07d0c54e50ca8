"""Operators that order numbers, on a grid: sort, argsort, topk, argmax, argmin and running sums, with gradients, beside numpy.

    check.grid("numerics.orders", orders(claimed), *RUN, level=level, seed=seed, means=...)

NaN is larger than every number, as in numpy and PyTorch. Equal numbers may stand in any order unless the sort is stable: then
the elements at the positions are compared, and that no position occurs twice. All numbers are small integers, which are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.numerics.operator_grids import EMPTY, INTEGERS, LAYOUTS, OF_LAYOUTS, SHAPES
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.checks.compared import Compared, numbers
from xpulab.checks.grid import Case, Grid, one_by_one


@dataclass(frozen=True)
class Order:
    """An operator. call: of a tensor and the case, returns values and positions, or None for one of them.

    kernel: Paddle's name of it. takes_all: whether the axis may be None. has_slope: whether it has a gradient.
    """

    call: Callable[[paddle.Tensor, Case], tuple[Any, Any]]
    kernel: str
    takes_all: bool = False
    has_slope: bool = False


def _count(case: Case) -> int:
    """How many are taken by topk."""
    return int(case.taken(case.shape[case.axis] if case.shape else 1))


ORDERS = {
    "sort": Order(
        lambda x, case: (paddle.sort(x, case.axis, case.descending, stable=case.option), None), "argsort", has_slope=True
    ),
    "argsort": Order(lambda x, case: (None, paddle.argsort(x, case.axis, case.descending, stable=case.option)), "argsort"),
    "topk": Order(
        lambda x, case: paddle.topk(x, _count(case), case.axis, largest=case.descending, sorted=not case.option),
        "topk",
        has_slope=True,
    ),
    "argmax": Order(lambda x, case: (None, paddle.argmax(x, case.axis, case.option)), "argmax", takes_all=True),
    "argmin": Order(lambda x, case: (None, paddle.argmin(x, case.axis, case.option)), "argmin", takes_all=True),
    "cumsum": Order(lambda x, case: (paddle.cumsum(x, case.axis), None), "cumsum", takes_all=True, has_slope=True),
}

OPTION = "stable, unsorted or keepdim"
"""The option of sort and argsort, of topk, and of argmax and argmin."""


def _mixed(others: Sequence[float]) -> Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]:
    """Numbers from 1 to 3, and one in four of these others."""
    return lambda rng, shape: np.where(rng.random(shape) < 0.25, rng.choice(others, shape), rng.integers(1, 4, shape))


VALUES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "different": lambda rng, shape: rng.permutation(int(np.prod(shape))).reshape(shape) * 1.0,
    "ties": lambda rng, shape: rng.integers(1, 4, shape) * 1.0,
    "negative": lambda rng, shape: -1.0 - rng.permutation(int(np.prod(shape))).reshape(shape),
    "all equal": lambda rng, shape: np.full(shape, 2.0),
    "in order": lambda rng, shape: np.arange(int(np.prod(shape)), dtype="float64").reshape(shape),
    "infinite": _mixed([np.inf, -np.inf]),
    "NaN": _mixed([np.nan]),
}

_NOT_FINITE = (VALUES["infinite"], VALUES["NaN"])
_RULES: dict[str, Callable[..., bool]] = {
    **OF_LAYOUTS,
    "integers are finite": lambda dtype, values: dtype in INTEGERS and values in _NOT_FINITE,
    "nothing has no largest": lambda operator, shape, axis: (
        0 in shape and (operator in ("argmax", "argmin", "topk")) and axis != -1
    ),
    "only some operators take all axes": lambda operator, axis: axis is None and not ORDERS[operator].takes_all,
    "only topk takes a number of elements": lambda operator, taken: operator != "topk" and taken is not TAKEN["half"],
    "argmax, argmin and cumsum have a direction": lambda operator, descending: ORDERS[operator].takes_all and not descending,
    "cumsum has no option": lambda operator, option: operator == "cumsum" and option,
    "a running sum of 16 bits is rounded": lambda operator, dtype: operator == "cumsum" and dtype in ("float16", "bfloat16"),
    "the device has no kernel for this type": lambda operator, dtype: bool(lacked(ORDERS[operator].kernel, dtype)),
}

TAKEN: dict[str, Callable[[int], int]] = {
    "half": lambda size: max(1, size // 2),
    "one": lambda size: 1,
    "all": lambda size: size,
}


def orders(types: Sequence[str]) -> Grid:
    """The grid, on the device in use. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "operator": tuple(ORDERS),
        "dtype": (*types, *INTEGERS),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "axis": (-1, 0, None),
        "values": VALUES,
        "descending": {"descending": True, "ascending": False},
        "option": {"none": False, OPTION: True},
        "taken": TAKEN,
    }
    return Grid(axes, _RULES, EMPTY, each="operator")


def _measure(case: Case) -> Compared:
    """Order on the device in use: values, what is at the positions, the positions where they follow, and the gradient."""
    order, rng = ORDERS[case.operator], case.rng()
    tensor = case.layout(case.values(rng, case.shape), case.dtype).detach()
    has_slope = order.has_slope and case.dtype not in INTEGERS
    tensor.stop_gradient = not has_slope
    x = tensor.astype("float64").numpy()
    values, positions = order.call(tensor, case)
    if order.takes_all:
        found, right = [values if positions is None else positions], [_of_all(case, x)]
    else:
        found, right = _in_order(case, x, values, positions)
    if has_slope:
        weight, slope = _weights(case, rng, x, positions)
        found += paddle.grad([values], [tensor], [paddle.to_tensor(weight).astype(case.dtype)])
        right.append(slope)
    arrays = [each if isinstance(each, np.ndarray) else each.astype("float64").numpy() for each in found]
    return Compared(*({str(place): numbers(each) for place, each in enumerate(every)} for every in (arrays, right)))


def _of_all(case: Case, x: np.ndarray) -> np.ndarray:
    """What argmax, argmin and cumsum give."""
    if not x.ndim and (case.axis is not None or case.operator != "cumsum"):  # numpy's results would have an axis
        return x if case.operator == "cumsum" else np.zeros(())
    if case.operator == "cumsum":
        with np.errstate(invalid="ignore"):  # infinity less infinity
            return np.cumsum(x, axis=case.axis)
    of_numpy = {"argmax": np.argmax, "argmin": np.argmin}[case.operator]
    if not x.size:  # numpy refuses, although no row is empty
        return np.zeros((0, 1) if case.option else (0,))
    return np.asarray(of_numpy(x, axis=case.axis, keepdims=case.option), "float64")


def _ranks(x: np.ndarray) -> np.ndarray:
    """For each element how many different numbers are smaller; NaN is the largest."""
    return np.unique(x, return_inverse=True)[1].reshape(x.shape)


def _in_order(case: Case, x: np.ndarray, values: Any, positions: Any) -> tuple[list[Any], list[np.ndarray]]:
    """What sort, argsort and topk found, and what is right."""
    if not x.ndim:
        x = x.reshape(1)
    ranks = _ranks(x)
    order = np.argsort(-ranks if case.descending else ranks, axis=case.axis, kind="stable")
    if case.operator == "topk":
        order = np.take(order, np.arange(_count(case)), case.axis)
    is_unsorted = case.operator == "topk" and case.option

    def kept(elements: np.ndarray) -> np.ndarray:
        return np.sort(elements, axis=case.axis) if is_unsorted else elements

    right = kept(np.take_along_axis(x, order, case.axis)).reshape(order.shape if case.shape else ())
    found, rights = [], []
    if values is not None:
        found.append(kept(values.astype("float64").numpy()) if case.shape else values.astype("float64").numpy())
        rights.append(right)
    if positions is not None:
        at = positions.numpy()
        whole = at if case.shape else at.reshape(1)
        found += [kept(np.take_along_axis(x, whole, case.axis)).reshape(at.shape), _repeats(whole, case.axis)]
        rights += [right, np.zeros_like(found[-1])]
        if case.operator == "argsort" and case.option:
            found.append(at.astype("float64"))
            rights.append(order.reshape(at.shape).astype("float64"))
    return found, rights


def _repeats(positions: np.ndarray, axis: int) -> np.ndarray:
    """1 where a position stands in its line twice, else 0."""
    return np.asarray(np.diff(np.sort(positions, axis=axis), axis=axis) == 0, "float64")


def _weights(case: Case, rng: np.random.Generator, x: np.ndarray, positions: Any) -> tuple[np.ndarray, np.ndarray]:
    """Weights of the values, and the gradient of x that belongs to them. Equal numbers that are sorted have equal weights."""
    if case.operator == "cumsum":
        weight = np.asarray(rng.integers(1, 5, x.size if case.axis is None else x.shape) * 1.0)
        if not weight.ndim:
            return weight, weight
        axis = case.axis or 0
        return weight, np.flip(np.cumsum(np.flip(weight, axis), axis), axis).reshape(x.shape)
    if case.operator == "sort":
        slope = _ranks(x) % 7 + 1.0
        if not x.ndim:
            return slope, slope
        ranks = np.sort(_ranks(x), axis=case.axis)
        return (np.flip(ranks, case.axis) if case.descending else ranks) % 7 + 1.0, slope
    at = positions.numpy()
    weight, slope = rng.integers(1, 5, at.shape) * 1.0, np.zeros(x.shape)
    if not x.ndim:
        return weight, weight
    np.put_along_axis(slope, at, weight, case.axis)
    return weight, slope


RUN = one_by_one(_measure), add_row_of(lambda case: [(ORDERS[case.operator].kernel, case.dtype, "")])
"""What check.grid takes as run and add_row."""
