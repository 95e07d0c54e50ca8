"""Operators that write at positions or under a mask, on a grid: where, scatter, put_along_axis and their kin, beside numpy.

    check.grid("indexing.writes", writes(device, types), *RUN, level=level, seed=seed, means=...)

Reference implementation: each operator takes elements of the value (`sources`) to places of the memory (`targets`), and sets,
adds or multiplies there, so one formula is right for all. What is set has all digits of its type; what is added or multiplied
are small integers, which are exact in any order. Everything is compared to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.index_grids import (
    EMPTY,
    FLOATS,
    GRADIENTS,
    LAYOUTS,
    OF_LAYOUTS,
    SHAPES,
    Wanted,
    drawn,
    gradients_of,
    strides,
    tensor_of,
    to_numpy,
    weights,
)
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.tensors.moving_grid import AXES, POSITIONS
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one


@dataclass(frozen=True)
class Write:
    """An operator that writes.

    call: Paddle's function of a tensor, what says where, a value and an axis. where: "mask", "rows" (positions of the first
    axis), "axis" (positions of an axis), "lines" (other positions in each line of an axis), "step" or "row".
    kernel: Paddle's name of it. in_place: the same function, writing into the tensor, or None. values: labels of VALUES.
    how: "set", "add" or "multiply". keeps: whether the old element counts where elements are added or multiplied.
    """

    call: Callable[..., paddle.Tensor]
    where: str
    kernel: str
    in_place: Callable[..., paddle.Tensor] | None = None
    values: tuple[str, ...] = ("same shape",)
    how: str = "set"
    keeps: bool = True


def _put(reduce: Any, keeps: bool = True) -> Write:
    """put_along_axis with this reduction, with and without the old elements."""

    def call(x: paddle.Tensor, where: paddle.Tensor, value: Any, axis: int) -> paddle.Tensor:
        return paddle.put_along_axis(x, where, value, axis, reduce, include_self=keeps, broadcast=False)

    def in_place(x: paddle.Tensor, where: paddle.Tensor, value: Any, axis: int) -> paddle.Tensor:
        return x.put_along_axis_(where, value, axis, reduce, include_self=keeps, broadcast=False)

    values = ("same shape", "number") if reduce == "assign" else ("same shape",)
    how = {"assign": "set", "add": "add", "mul": "multiply"}[reduce]
    return Write(call, "lines", "put_along_axis", in_place, values, how, keeps)


def _scattered(x: paddle.Tensor, where: slice, value: paddle.Tensor, axis: int) -> paddle.Tensor:
    return paddle.slice_scatter(x, value, [axis % x.ndim], [where.start], [x.shape[axis]], [where.step])


_BROADCAST = ("same shape", "0-d", "row")

WRITES = {
    "where": Write(
        lambda x, where, value, axis: paddle.where(where, value, x),
        "mask",
        "where",
        None,
        ("same shape", "0-d", "row", "number"),
    ),
    "where, not": Write(
        lambda x, where, value, axis: paddle.where(paddle.logical_not(where), x, value),
        "mask",
        "where",
        lambda x, where, value, axis: paddle.where_(paddle.logical_not(where), x, value),
    ),
    "masked_fill": Write(
        lambda x, where, value, axis: paddle.masked_fill(x, where, value),
        "mask",
        "masked_fill",
        lambda x, where, value, axis: paddle.masked_fill_(x, where, value),
        ("0-d", "number"),
    ),
    "masked_scatter": Write(
        lambda x, where, value, axis: paddle.masked_scatter(x, where, value),
        "mask",
        "where",
        lambda x, where, value, axis: paddle.masked_scatter_(x, where, value),
    ),
    "index_put": Write(
        lambda x, where, value, axis: paddle.index_put(x, (where,), value),
        "rows",
        "index_put",
        lambda x, where, value, axis: paddle.index_put_(x, (where,), value),
        _BROADCAST,
    ),
    "index_put, accumulate": Write(
        lambda x, where, value, axis: paddle.index_put(x, (where,), value, True),
        "rows",
        "index_put",
        lambda x, where, value, axis: paddle.index_put_(x, (where,), value, True),
        _BROADCAST,
        "add",
    ),
    "index_add": Write(
        lambda x, where, value, axis: paddle.index_add(x, where, axis, value),
        "axis",
        "index_add",
        lambda x, where, value, axis: paddle.index_add_(x, where, axis, value),
        how="add",
    ),
    "scatter": Write(
        lambda x, where, value, axis: paddle.scatter(x, where, value),
        "rows",
        "scatter",
        lambda x, where, value, axis: paddle.scatter_(x, where, value),
    ),
    "scatter, overwrite=False": Write(
        lambda x, where, value, axis: paddle.scatter(x, where, value, overwrite=False),
        "rows",
        "scatter",
        lambda x, where, value, axis: paddle.scatter_(x, where, value, overwrite=False),
        how="add",
        keeps=False,
    ),
    "scatter_nd_add": Write(
        lambda x, where, value, axis: paddle.scatter_nd_add(x, where.unsqueeze(-1), value), "rows", "scatter_nd_add", how="add"
    ),
    "put_along_axis": _put("assign"),
    "put_along_axis, add": _put("add"),
    "put_along_axis, add, without the old": _put("add", keeps=False),
    "put_along_axis, mul": _put("mul"),
    "put_along_axis, mul, without the old": _put("mul", keeps=False),
    "slice_scatter": Write(_scattered, "step", "set_value_with_tensor"),
    "select_scatter": Write(
        lambda x, where, value, axis: paddle.select_scatter(x, value, axis, where), "row", "set_value_with_tensor"
    ),
}

MASKS: dict[str, Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]] = {
    "some": lambda rng, shape: rng.random(shape) < 0.5,
    "a row": lambda rng, shape: rng.random(shape[-1:]) < 0.5,
    "a column": lambda rng, shape: rng.random((*shape[:-1], 1)) < 0.5,
    "all": lambda rng, shape: np.ones(shape, bool),
    "nothing": lambda rng, shape: np.zeros(shape, bool),
}
"""By name a mask, which may be broadcast to the tensor."""

INDICES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    **{name: POSITIONS[name] for name in ("different", "one", "repeated", "many", "none")},
    "from the end": lambda rng, size: rng.permutation(size)[:3] - size,
    "different, int32": lambda rng, size: rng.permutation(size)[:3].astype("int32"),
    "from the end, int32": lambda rng, size: (rng.permutation(size)[:3] - size).astype("int32"),
}
"""By name positions of an axis of this size; of int64 where nothing else is said."""

PLACES = {**MASKS, "by the operator": None, **INDICES}
"""By name what says where is written: a mask, or positions; a slice or a row is chosen by the operator."""


@dataclass(frozen=True)
class Way:
    """How an operator is called: whether it writes into the tensor, and FLAGS_use_stride_kernel; with 0 views are copies."""

    in_place: bool = False
    strides: int = 1


WAYS = {"function": Way(), "in place": Way(in_place=True), "without stride kernels": Way(strides=0)}

_REPEATED = (INDICES["repeated"], INDICES["many"])
_NEGATIVE = (INDICES["from the end"], INDICES["from the end, int32"])

CRASHES_ON_SIM: dict[str, Callable[..., bool]] = {
    "on simulated cards the gradient of index_put by fewer positions than axes crashes": lambda operator, shape, gradient: (
        gradient != Wanted() and WRITES[operator].kernel == "index_put" and len(shape) > 1
    ),
}

CRASHES: dict[str, Callable[..., bool]] = {
    "Paddle 3.3.1 takes the gradient of put_along_axis at a negative position from beside its memory": (
        lambda operator, places, gradient: (
            gradient != Wanted() and WRITES[operator].kernel == "put_along_axis" and places in _NEGATIVE
        )
    ),
    "Paddle 3.3.1 writes by a tensor beside the memory of a view": lambda operator, layout, way: (
        way.in_place and WRITES[operator].kernel == "index_put" and not layout.is_contiguous
    ),
}
"""What may end the process."""

RULES: dict[str, Callable[..., bool]] = {
    **OF_LAYOUTS,
    "an operator takes a mask, or positions, or neither": lambda operator, places: (
        (places in MASKS.values()) != (WRITES[operator].where == "mask")
        or (places in INDICES.values()) != (WRITES[operator].where in ("rows", "axis", "lines"))
    ),
    "a number has no rows and no columns": lambda shape, places: not shape and places in (MASKS["a row"], MASKS["a column"]),
    "positions need an axis with elements, and a row a second axis": lambda operator, shape: (
        WRITES[operator].where != "mask" and (not shape or 0 in shape or (WRITES[operator].where == "row" and len(shape) < 2))
    ),
    "only some operators have an axis": lambda operator, axis: axis != 0 and WRITES[operator].where in ("mask", "rows"),
    "values that are set at one place have no order": lambda operator, places: (
        places in _REPEATED and WRITES[operator].how == "set"
    ),
    "products of many leave the type": lambda operator, places: (
        places is INDICES["many"] and WRITES[operator].how == "multiply"
    ),
    "each operator has its values": lambda operator, value: (value not in WRITES[operator].values),
    "a number has no type and no gradient": lambda value, gradient: value == "number" and gradient.value,
    "Paddle takes an integer in where for int64, and refuses another type beside it": lambda operator, dtype, value: (
        value == "number" and WRITES[operator].kernel == "where" and dtype == "int32"
    ),
    "truth values are not added": lambda operator, dtype: dtype == "bool" and WRITES[operator].how != "set",
    "only floats have gradients": lambda dtype, gradient: gradient != Wanted() and dtype not in FLOATS,
    "not every operator writes in place": lambda operator, way: way.in_place and WRITES[operator].in_place is None,
    "the device has no kernel for this type": lambda operator, dtype: bool(lacked(WRITES[operator].kernel, dtype)),
    "the device has no gradient for this type": lambda operator, dtype, gradient: (
        gradient != Wanted() and bool(lacked(WRITES[operator].kernel, dtype, "gradient"))
    ),
}

OF_HALVES: dict[str, Callable[..., bool]] = {
    "sums of many numbers need more bits than bfloat16 has": lambda operator, places, dtype: (
        places is INDICES["many"] and WRITES[operator].how == "add" and dtype == "bfloat16"
    ),
}


def writes(device: str, types: Sequence[str]) -> Grid:
    """The grid. device: the one in use, cpu, gpu, xpu or sim. types: the floating types that it has."""
    rules = {**RULES, **CRASHES, **(CRASHES_ON_SIM if device == "sim" else {}), **(OF_HALVES if "bfloat16" in types else {})}
    axes: dict[str, Any] = {
        "operator": tuple(WRITES),
        "dtype": (*types, "int64", "int32", "bool"),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "axis": AXES,
        "places": PLACES,
        "value": ("same shape", "0-d", "row", "number"),
        "way": WAYS,
        "gradient": GRADIENTS,
    }
    return Grid(axes, rules, EMPTY, each="operator")


def _measure(case: Case) -> Compared:
    """Write on the device in use: the result, in place also the memory, and the gradients that the case asks for."""
    with strides(case.way.strides):
        return _written(case)


def _written(case: Case) -> Compared:
    rng, write = case.rng(), WRITES[case.operator]
    whole = _numbers(rng, case.layout.whole(case.shape), case.dtype, write.how)
    at = case.layout.view(np.arange(whole.size).reshape(whole.shape))
    where, targets, value, sources = _chosen(rng, case, at)
    elements = value.ravel()[sources]
    after = whole.ravel().copy()
    if not write.keeps:
        after[targets] = {"add": 0, "multiply": 1}[write.how]
    _write(after, targets, elements, write.how)
    right = {"result": after[at]}

    memory = tensor_of(whole, case.dtype)
    memory.stop_gradient = not case.gradient.x
    start = memory * 1 if case.gradient.x and case.way.in_place else memory
    given = value.item() if case.value == "number" else tensor_of(value, case.dtype)
    if case.value != "number":
        given.stop_gradient = not case.gradient.value
    call = write.in_place if case.way.in_place else write.call
    assert call is not None
    place = paddle.to_tensor(where) if isinstance(where, np.ndarray) else where
    result = call(case.layout.view(start), place, given, case.axis)
    found = {"result": to_numpy(result)}
    if case.way.in_place and not case.layout.is_copy and not paddle.get_device().startswith("sim"):
        found["memory"], right["memory"] = to_numpy(start), after.reshape(whole.shape)

    wanted = {"gradient of x": memory} if case.gradient.x else {}
    if case.gradient.value:
        wanted["gradient of the value"] = given
    if wanted:
        weight, kept = weights(rng, case.shape, case.dtype), np.zeros(whole.size, "float32")
        kept[at] = weight
        exact = _slopes(write, whole, targets, value, sources, kept)
        for name, slope in gradients_of(result, wanted, weight, case.dtype).items():
            found[name], right[name] = slope + 0.0, exact[name] + 0.0  # the sign of a zero depends on the order of factors
    return Compared(found, right)


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, how: str) -> np.ndarray:
    """What is set has all digits; what is added or multiplied is 1, 2 or their negative."""
    if how == "set":
        return drawn(rng, shape, dtype)
    return np.asarray(rng.choice([-2, -1, 1, 2], shape), "float32" if dtype == "bfloat16" else dtype)


def _chosen(rng: np.random.Generator, case: Case, at: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """What says where; the places in memory that are written; the value; and which of its elements go to these places."""
    write, shape, axis = WRITES[case.operator], case.shape, case.axis
    if write.where == "mask":
        where: Any = np.asarray(case.places(rng, shape))
        is_chosen = np.broadcast_to(where, shape)
        targets = at[is_chosen]
        value = _value(rng, case, shape)
        if case.operator == "masked_scatter":
            return where, targets, value, np.arange(len(targets))
        return where, targets, value, np.broadcast_to(np.arange(value.size).reshape(value.shape), shape)[is_chosen]
    if write.where == "step":
        where = slice(int(rng.integers(0, min(2, shape[axis]))), None, 2)
        selected = np.moveaxis(np.moveaxis(at, axis, 0)[where], 0, axis)
    elif write.where == "row":
        where = int(rng.integers(0, shape[axis]))
        selected = np.take(at, where, axis)
    else:
        where = case.places(rng, shape[axis])
        selected = np.take(at, where, axis)
        if write.where == "lines":
            where = _beside(rng, where, shape, axis)
            selected = np.take_along_axis(at, where, axis)
    value = _value(rng, case, selected.shape)
    numbers = np.arange(value.size).reshape(value.shape)
    return where, selected.ravel(), value, np.broadcast_to(numbers, selected.shape).ravel()


def _beside(rng: np.random.Generator, positions: np.ndarray, shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Positions along an axis for each line of it, each line with a shift of its own; negative ones stay negative."""
    size = shape[axis]
    across = list(shape)
    across[axis] = 1
    along = [1] * len(shape)
    along[axis] = len(positions)
    lowest = np.where(positions < 0, -size, 0).reshape(along)
    return (lowest + (positions.reshape(along) + rng.integers(0, size, across)) % size).astype(positions.dtype)


def _value(rng: np.random.Generator, case: Case, shape: tuple[int, ...]) -> np.ndarray:
    of_value = {"0-d": (), "number": (), "row": shape[-1:]}.get(case.value, shape)
    if case.value == "number":
        return np.asarray(rng.integers(0, 2), "float32" if case.dtype == "bfloat16" else case.dtype)
    return _numbers(rng, of_value, case.dtype, WRITES[case.operator].how)


def _write(flat: np.ndarray, targets: np.ndarray, elements: np.ndarray, how: str) -> None:
    if how == "set":
        flat[targets] = elements
    elif how == "add":
        np.add.at(flat, targets, elements)
    else:
        np.multiply.at(flat, targets, elements)


def _slopes(
    write: Write, whole: np.ndarray, targets: np.ndarray, value: np.ndarray, sources: np.ndarray, weight: np.ndarray
) -> dict[str, np.ndarray]:
    """The gradients of the memory and of the value, where each place of the result has this weight."""
    flat, elements = whole.ravel().astype("float64"), value.ravel()[sources].astype("float64")
    of_x, of_element = weight.copy(), weight[targets]
    if write.how == "multiply":
        factors = np.ones(flat.size)
        np.multiply.at(factors, targets, elements)
        of_element = of_element * factors[targets] / elements * (flat[targets] if write.keeps else 1)
        of_x = of_x * factors
    if write.how == "set" or not write.keeps:
        of_x[targets] = 0
    of_value = np.zeros(value.size)
    np.add.at(of_value, sources, of_element)
    slopes = {"gradient of x": of_x.reshape(whole.shape), "gradient of the value": of_value.reshape(value.shape)}
    return {name: slope.astype("float32") for name, slope in slopes.items()}


RUN = one_by_one(_measure), add_row_of(lambda case: [(WRITES[case.operator].kernel, case.dtype, "")])
"""What check.grid takes as run and add_row."""
