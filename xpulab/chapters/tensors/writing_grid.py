"""Operators that write at positions or under a mask, on a grid: where, scatter, put_along_axis and their kin, beside numpy.

    check.grid("indexing.writes", writes(device, types), *RUN, level=level, seed=seed, means=...)

Each operator takes elements of the value to places of the memory, and sets or adds them there, so one formula is right for all
(operator_tester.written). What is set has all digits of its type; what is added are small integers, which are exact in any
order. Everything is compared to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared import interesting, operator_tester
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, FLOATS, INTEGERS, LAYOUTS, OF_LAYOUTS, SHAPES, Rules, Shape
from xpulab.chapters.tensors.index_grids import GRADIENTS, on_sim
from xpulab.chapters.tensors.moving_grid import AXES, POSITIONS
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one


@dataclass(frozen=True)
class Write:
    """An operator that writes.

    name: of Paddle's function; with "_" it writes into the tensor. call: of that function, a tensor, what says where, a value
    and an axis. where: "mask", "rows" (positions of the first axis), "axis" (positions of an axis) or "lines" (other positions
    in each line of an axis). values: labels of the axis value. how, with_memory: as operator_tester.written takes them.
    in_place: whether it can be.
    """

    name: str
    call: Callable[..., paddle.Tensor]
    where: str
    values: tuple[str, ...] = ("same shape",)
    how: str = "set"
    in_place: bool = True
    with_memory: bool = True


def _put(reduce: str, include_self: bool = True) -> Write:
    return Write(
        "put_along_axis",
        lambda f, x, at, value, axis: f(x, at, value, axis, reduce, include_self, broadcast=False),
        "lines",
        how=reduce,
        with_memory=include_self,
    )


_BROADCAST = ("same shape", "0-d", "row")

WRITES = {
    "where": Write("where", lambda f, x, at, value, axis: f(at, value, x), "mask", (*_BROADCAST, "number"), in_place=False),
    "masked_fill": Write("masked_fill", lambda f, x, at, value, axis: f(x, at, value), "mask", ("0-d", "number")),
    "index_put": Write("index_put", lambda f, x, at, value, axis: f(x, (at,), value), "rows", _BROADCAST),
    "index_put, accumulate": Write(
        "index_put", lambda f, x, at, value, axis: f(x, (at,), value, True), "rows", _BROADCAST, "add"
    ),
    "index_add": Write("index_add", lambda f, x, at, value, axis: f(x, at, axis, value), "axis", how="add"),
    "scatter": Write("scatter", lambda f, x, at, value, axis: f(x, at, value), "rows"),
    "scatter, overwrite=False": Write(
        "scatter", lambda f, x, at, value, axis: f(x, at, value, overwrite=False), "rows", how="add", with_memory=False
    ),
    "scatter_nd_add": Write(
        "scatter_nd_add", lambda f, x, at, value, axis: f(x, at.unsqueeze(-1), value), "rows", how="add", in_place=False
    ),
    "put_along_axis": Write(
        "put_along_axis",
        lambda f, x, at, value, axis: f(x, at, value, axis, broadcast=False),
        "lines",
        ("same shape", "number"),
    ),
    "put_along_axis, add": _put("add"),
    "put_along_axis, add, include_self=False": _put("add", include_self=False),
    "put_along_axis, mul": _put("mul"),
    "put_along_axis, mul, include_self=False": _put("mul", include_self=False),
    "put_along_axis, amax": _put("amax"),
    "put_along_axis, amin, include_self=False": _put("amin", include_self=False),
}

MASKS: dict[str, Callable[[np.random.Generator, Shape], np.ndarray]] = {
    "some": lambda rng, shape: rng.random(shape) < 0.5,
    "a row": lambda rng, shape: rng.random(shape[-1:]) < 0.5,
    "a column": lambda rng, shape: rng.random((*shape[:-1], 1)) < 0.5,
    "nothing": lambda rng, shape: np.zeros(shape, bool),
}
"""By name a mask, which may be broadcast to the tensor."""

INDICES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    **POSITIONS,
    "from the end": lambda rng, size: rng.permutation(size)[:3] - size,
    "different, int32": lambda rng, size: rng.permutation(size)[:3].astype("int32"),
}
"""By name positions of an axis of this size; of int64 where nothing else is said."""

PLACES = {**MASKS, **INDICES}
"""By name what says where is written."""


CRASHES_ON_SIM: Rules = {
    "on simulated cards the gradient of index_put by fewer positions than axes crashes": lambda operator, shape, gradient: (
        bool(gradient) and WRITES[operator].name == "index_put" and len(shape) > 1
    ),
}

RULES: Rules = {
    **OF_LAYOUTS,
    "an operator takes a mask or positions": lambda operator, places: (
        (places in MASKS.values()) != (WRITES[operator].where == "mask")
    ),
    "a number has no rows and no columns": lambda shape, places: not shape and places in (MASKS["a row"], MASKS["a column"]),
    "positions need an axis with elements": lambda operator, shape: (
        WRITES[operator].where != "mask" and (not shape or 0 in shape)
    ),
    "only some operators have an axis": lambda operator, axis: axis != 0 and WRITES[operator].where in ("mask", "rows"),
    "values that are set at one place have no order": lambda operator, places: (
        places in (INDICES["repeated"], INDICES["many"]) and WRITES[operator].how == "set"
    ),
    "each operator has its values": lambda operator, value: value not in WRITES[operator].values,
    "a number has no type and no gradient": lambda value, gradient: value == "number" and 1 in gradient,
    "Paddle takes an integer in where for int64, and refuses another type beside it": lambda operator, dtype, value: (
        value == "number" and operator == "where" and dtype == "int32"
    ),
    "truth values are not added": lambda operator, dtype: dtype == "bool" and WRITES[operator].how != "set",
    "equal extremes share their gradient, which is not exact": lambda operator, gradient: (
        bool(gradient) and WRITES[operator].how in ("amax", "amin")
    ),
    "a product of many numbers leaves the type": lambda operator, places: (
        WRITES[operator].how == "mul" and places is INDICES["many"]
    ),
    "only floats have gradients": lambda dtype, gradient: bool(gradient) and dtype not in FLOATS,
    "not every operator writes in place": lambda operator, way: way == "in place" and not WRITES[operator].in_place,
    "the device has no kernel for this type": lambda operator, dtype: bool(lacked(WRITES[operator].name, dtype)),
    "the device has no gradient for this type": lambda operator, dtype, gradient: (
        bool(gradient) and bool(lacked(WRITES[operator].name, dtype, "gradient"))
    ),
    "sums of many numbers need more bits than bfloat16 has": lambda places, dtype: (
        places is INDICES["many"] and dtype == "bfloat16"
    ),
    "Paddle 3.3.1 takes the gradient of put_along_axis at a negative position from beside its memory": (
        lambda operator, places, gradient: (
            bool(gradient) and WRITES[operator].name == "put_along_axis" and places is INDICES["from the end"]
        )
    ),
    "Paddle 3.3.1 writes by a tensor beside the memory of a view": lambda operator, layout, way: (
        way == "in place" and WRITES[operator].name == "index_put" and not layout.is_contiguous
    ),
}


_TOO_MANY = ("300 times each", "70,000", "all the same")


def writes(device: str, types: Sequence[str]) -> Grid:
    """The grid. device: the one in use, cpu, gpu, xpu or sim. types: the floating types that it has."""
    axes: dict[str, Any] = {
        "operator": tuple(WRITES),
        "dtype": (*types, *INTEGERS, "bool"),
        "layout": LAYOUTS,
        "shape": SHAPES,
        "axis": AXES,
        "places": PLACES,
        "value": (*_BROADCAST, "number"),
        "way": ("function", "in place"),
        "gradient": GRADIENTS,
    }
    further: Rules = {
        **interesting.FEW_AXES,
        **interesting.NOT_REPEATED,
        "many positions are of short rows, and of types that hold sums of so many": lambda shape, dtype, places: (
            interesting.are_too_many(shape, dtype, places)
        ),
        "many positions are of short rows": lambda shape, places: places is INDICES["many"] and math.prod(shape) > 4097,
        "values that are set have an order where no place occurs twice": lambda operator, places: (
            places in interesting.POSITIONS.values()
            and WRITES[operator].how == "set"
            and places not in (interesting.POSITIONS["descending"], interesting.POSITIONS["every one, shuffled"])
        ),
        "a product of numbers that are written many times leaves the type": lambda operator, places: (
            WRITES[operator].how == "mul" and places in (interesting.POSITIONS[name] for name in _TOO_MANY)
        ),
        "a mask has no positions": lambda operator, places: (
            places in interesting.POSITIONS.values() and WRITES[operator].where == "mask"
        ),
    }
    grid = Grid(axes, {**RULES, **(CRASHES_ON_SIM if device == "sim" else {})}, EMPTY, each="operator")
    positions = {name: of for name, of in interesting.POSITIONS.items() if name not in INDICES}
    more: dict[str, Any] = {"index_layout": interesting.INDEX_LAYOUTS, "elements": interesting.ELEMENTS}
    return grid.with_further({**interesting.OF_SHAPES, **more, "places": positions}, further)


def _measure(case: Case) -> Compared:
    """Write on the device in use: the result, in place the memory, and the gradients that the case asks for."""
    rng, write = case.rng(), WRITES[case.operator]
    memory = case.layout.memory(_numbers(rng, case, case.shape), case.dtype)
    places = case.layout.places(case.shape)
    at, targets = _chosen(rng, case, places)
    of_value = case.shape if write.where == "mask" else targets.shape
    elements = _numbers(rng, case, {"0-d": (), "number": (), "row": of_value[-1:]}.get(case.value, of_value))
    sources = None
    if write.where == "mask":  # the value is broadcast to the tensor, and the mask chooses of both
        numbered = np.broadcast_to(np.arange(elements.size).reshape(elements.shape), case.shape)
        sources = numbered[np.broadcast_to(at, case.shape)]
    is_in_place = case.way == "in place"
    is_seen = is_in_place and not case.layout.is_copy and not case.gradient and not on_sim()
    shown = np.arange(memory.size).reshape(memory.shape) if is_seen else places
    value, slopes = operator_tester.written(elements, targets, shown, write.how, sources, write.with_memory)
    number = operator_tester.number_of(elements, case.dtype) if case.value == "number" else None
    given = [] if case.value == "number" else [LAYOUTS["contiguous"].tensor(elements, case.dtype)]
    index = getattr(case, "index_layout", paddle.to_tensor)(at)
    function = getattr(paddle.Tensor, f"{write.name}_") if is_in_place else getattr(paddle, write.name)

    def call(x: paddle.Tensor, *assigned: paddle.Tensor) -> paddle.Tensor:
        start = x.clone() if is_in_place else x
        tensor = case.layout.of(start)
        result = write.call(function, tensor, index, assigned[0] if assigned else number, case.axis)
        return start if is_seen else result

    return operator_tester.computed(rng, case.dtype, call, [memory, *given], value, slopes, {0, 1} - {*case.gradient})


def _numbers(rng: np.random.Generator, case: Case, shape: Shape) -> np.ndarray:
    """What is set has all digits; what is combined, and a number, are small."""
    if WRITES[case.operator].how != "set" or case.value == "number":
        return np.asarray(rng.integers(0, 2, shape) if case.dtype == "bool" else rng.choice([-2, -1, 1, 2], shape), "float64")
    return np.asarray(getattr(case, "elements", operator_tester.drawn)(rng, shape, case.dtype))


def _chosen(rng: np.random.Generator, case: Case, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What says where, a mask or positions, and the places in memory that are written."""
    write, axis = WRITES[case.operator], case.axis
    if write.where == "mask":
        mask = np.asarray(case.places(rng, case.shape))
        return mask, places[np.broadcast_to(mask, case.shape)]
    positions = case.places(rng, case.shape[axis])
    if write.where != "lines":
        return positions, np.take(places, positions, axis)
    lines = _beside(rng, positions, case.shape, axis)
    return lines, np.take_along_axis(places, lines, axis)


def _beside(rng: np.random.Generator, positions: np.ndarray, shape: Shape, axis: int) -> np.ndarray:
    """Positions along an axis for each line of it, each line with a shift of its own; negative ones stay negative."""
    size, across, along = shape[axis], list(shape), [1] * len(shape)
    across[axis], along[axis] = 1, len(positions)
    lowest = np.where(positions < 0, -size, 0).reshape(along)
    return (lowest + (positions.reshape(along) + rng.integers(0, size, across)) % size).astype(positions.dtype)


RUN = one_by_one(_measure), add_row_of(lambda case: [(WRITES[case.operator].name, case.dtype, "")])
