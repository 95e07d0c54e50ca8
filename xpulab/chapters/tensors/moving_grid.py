"""Operators that move elements on grids: reshape, concat, tile, gather, copies and their kin, with gradients, beside numpy.

    check.grid("indexing.moves", moves(), *RUN, level=level, seed=seed, means=...)

Each operator has a formula in numpy. It moves the places of elements as it moves elements, so the gradient follows from it, too
(operator_tester.moved). Everything is compared to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, FLOATS, LAYOUTS, OF_LAYOUTS, SHAPES, Rules, computed, moved
from xpulab.chapters.tensors.index_grids import TYPES
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one


@dataclass(frozen=True)
class Move:
    """An operator that moves elements.

    call: Paddle's, of a tensor, an axis and positions (None in moves). formula: the same in numpy, which puts 0 where the
    operator puts none of the elements. kernel: Paddle's name of it. axes: how many the tensor needs.
    """

    call: Callable[..., Any]
    formula: Callable[..., Any]
    kernel: str
    axes: int = 1


def _order(ndim: int) -> list[int]:
    """Axes in an order that is not its own inverse, of three and more."""
    return [*range(1, ndim), 0]


def _copy(call: Callable[[paddle.Tensor], paddle.Tensor], kernel: str = "assign") -> Move:
    return Move(lambda x, axis, _: call(x), lambda x, axis, _: x, kernel, 0)


MOVES = {
    "reshape": Move(lambda x, axis, _: x.reshape([-1]), lambda x, axis, _: x.reshape(-1), "reshape", 0),
    "transpose": Move(
        lambda x, axis, _: x.transpose(_order(x.ndim)), lambda x, axis, _: x.transpose(_order(x.ndim)), "transpose"
    ),
    "unsqueeze": Move(lambda x, axis, _: x.unsqueeze(axis), lambda x, axis, _: np.expand_dims(x, axis), "unsqueeze", 0),
    "squeeze": Move(lambda x, axis, _: x.unsqueeze(axis).squeeze(axis), lambda x, axis, _: x, "squeeze", 0),
    "expand": Move(lambda x, axis, _: x.unsqueeze(0).expand([3, *x.shape]), lambda x, axis, _: np.stack([x] * 3), "expand", 0),
    "tile": Move(
        lambda x, axis, _: paddle.tile(x, [2] * (x.ndim + 1)), lambda x, axis, _: np.tile(x, [2] * (x.ndim + 1)), "tile", 0
    ),
    "concat": Move(lambda x, axis, _: paddle.concat([x] * 3, axis), lambda x, axis, _: np.concatenate([x] * 3, axis), "concat"),
    "stack": Move(lambda x, axis, _: paddle.stack([x, x], axis), lambda x, axis, _: np.stack([x, x], axis), "stack", 0),
    "split": Move(lambda x, axis, _: paddle.split(x, [1, -1], axis)[1], lambda x, axis, _: np.split(x, [1], axis)[1], "split"),
    "unbind": Move(lambda x, axis, _: paddle.unbind(x, axis)[1], lambda x, axis, _: np.moveaxis(x, axis, 0)[1], "unbind"),
    "flip": Move(lambda x, axis, _: paddle.flip(x, [axis]), lambda x, axis, _: np.flip(x, axis), "flip"),
    "roll": Move(lambda x, axis, _: paddle.roll(x, 2, axis), lambda x, axis, _: np.roll(x, 2, axis), "roll"),
    "tril": Move(lambda x, axis, _: paddle.tril(x, axis), lambda x, axis, _: np.tril(x, axis), "tril", 2),
    "triu": Move(lambda x, axis, _: paddle.triu(x, axis), lambda x, axis, _: np.triu(x, axis), "triu", 2),
    "repeat_interleave": Move(
        lambda x, axis, _: paddle.repeat_interleave(x, 3, axis), lambda x, axis, _: np.repeat(x, 3, axis), "repeat_interleave"
    ),
    "pad": Move(lambda x, axis, _: F.pad(x, [1, 2] * x.ndim), lambda x, axis, _: np.pad(x, (1, 2)), "pad"),
    "clone": _copy(lambda x: x.clone()),
    "contiguous": _copy(lambda x: x.contiguous(), "contiguous"),
    "assign": _copy(paddle.assign),
}
"""Operators without an index; of those with several results one."""

COPIES: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
    "to the host": lambda x: x.cpu(),
    "to an array and back": lambda x: paddle.to_tensor(x.numpy(), dtype=x.dtype),
    "copy_": lambda x: _copied(paddle.zeros(x.shape, x.dtype), x),
    "set_value": lambda x: _set(paddle.zeros(x.shape, x.dtype), x),
}
"""Copies of tensors that have no gradient."""


def _copied(target: Any, x: paddle.Tensor) -> paddle.Tensor:
    target.copy_(x, True)
    return target


def _set(target: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    target.set_value(x)
    return target


SELECTIONS = {
    "gather": Move(
        lambda x, axis, index: paddle.gather(x, index, axis), lambda x, axis, index: np.take(x, index, axis), "gather"
    ),
    "index_select": Move(
        lambda x, axis, index: paddle.index_select(x, index, axis),
        lambda x, axis, index: np.take(x, index, axis),
        "index_select",
    ),
    "gather_nd": Move(
        lambda x, axis, index: paddle.gather_nd(x, index.unsqueeze(-1)), lambda x, axis, index: x[index], "gather_nd"
    ),
    "take_along_axis": Move(
        lambda x, axis, index: paddle.take_along_axis(x, _beside(x, axis, index), axis, broadcast=False),
        lambda x, axis, index: np.take(x, index, axis),
        "take_along_axis",
    ),
    "masked_select": Move(
        lambda x, axis, index: paddle.masked_select(
            x, interesting.INDEX_LAYOUTS["every other"](_is_chosen(x.shape, axis, index.numpy()))
        ),
        lambda x, axis, index: x[_is_chosen(x.shape, axis, index)],
        "masked_select",
    ),
    "embedding": Move(lambda x, axis, index: F.embedding(index, x), lambda x, axis, index: x[index], "embedding", 2),
    "embedding, the last row is padding": Move(  # it is read as zeros, and has no gradient
        lambda x, axis, index: F.embedding(index, x, padding_idx=-1),
        lambda x, axis, index: np.where((index == len(x) - 1)[:, None], 0, x[index]),
        "embedding",
        2,
    ),
    "one_hot": Move(
        lambda x, axis, index: _where_hot(F.one_hot(index, x.shape[0]), x),
        lambda x, axis, index: np.where(index[:, None] == np.arange(len(x)), x, 0),
        "where",
    ),
}
"""Operators that read at positions of one axis; one_hot selects an element of each row, as the gate of a mixture of experts."""


def _where_hot(hot: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    return paddle.where(hot == 1, x, hot.astype(x.dtype))


def _is_chosen(shape: Sequence[int], axis: int, index: np.ndarray) -> np.ndarray:
    """A mask of this shape of the places whose position along the axis is among these."""
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    return np.array(np.broadcast_to(np.isin(np.arange(shape[axis]), index).reshape(sizes), shape))


def _beside(x: paddle.Tensor, axis: int, index: paddle.Tensor) -> paddle.Tensor:
    """The positions along the axis, the same for every other place of x."""
    shape, whole = [1] * x.ndim, list(x.shape)
    shape[axis] = whole[axis] = index.shape[0]
    return index.reshape(shape).expand(whole)


POSITIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "different": lambda rng, size: rng.permutation(size)[:3],
    "repeated": lambda rng, size: np.repeat(rng.permutation(size)[:2], 3),
    "one": lambda rng, size: rng.integers(0, size, 1),
    "many": lambda rng, size: rng.integers(0, size, 1025),
    "none": lambda rng, size: np.zeros(0, int),
}
"""By name positions of an axis of this size."""

AXES = {"first": 0, "last": -1}

_ALL = {**MOVES, **{name: _copy(call) for name, call in COPIES.items()}, **SELECTIONS}

RULES: Rules = {
    **OF_LAYOUTS,
    "the operator needs its axes": lambda operator, shape: len(shape) < _ALL[operator].axes,
    "the device has no kernel for this type": lambda operator, dtype: _is_lacked(_ALL[operator].kernel, dtype),
    "nothing is split into two or unbound": lambda operator, shape: operator in ("split", "unbind")
    and (0 in shape or 1 in shape),
}


def _is_lacked(kernel: str, dtype: str) -> bool:
    """Whether the device in use is known to have no kernel for the operator, or for a part of its gradient."""
    used = [(kernel, "")]
    if dtype in FLOATS:
        used += [(kernel, "gradient"), *([("add", "")] if kernel in ("concat", "stack") else [])]
    return any(lacked(name, dtype, form) for name, form in used)


def moves() -> Grid:
    """The grid of operators without an index, on the device in use."""
    axes: dict[str, Any] = {"operator": (*MOVES, *COPIES), "dtype": TYPES, "layout": LAYOUTS, "shape": SHAPES, "axis": AXES}
    axes["elements"] = interesting.ELEMENTS
    further: Rules = {
        **interesting.RULES,
        **interesting.NO_SLOPE_OF_REPEATED,
        "tile takes at most seven axes, one of them new, and pad six": lambda operator, shape: (
            operator in ("tile", "pad") and len(shape) > 6
        ),
    }
    return Grid(axes, RULES, EMPTY, each="operator").with_further(interesting.OF_SHAPES, further)


def selections() -> Grid:
    """The grid of operators that read at positions, on the device in use."""
    axes: dict[str, Any] = {"operator": tuple(SELECTIONS), "dtype": TYPES, "layout": LAYOUTS, "shape": SHAPES, "axis": AXES}
    rules: Rules = {
        **RULES,
        "nothing is read from an axis without elements": lambda shape: 0 in shape,
        "this operator reads rows": lambda operator, axis: (
            SELECTIONS[operator].kernel in ("gather_nd", "embedding", "where") and axis != 0
        ),
        "an embedding has rows": lambda operator, shape: SELECTIONS[operator].kernel == "embedding" and len(shape) != 2,
        "a row of one_hot has one axis": lambda operator, shape: operator == "one_hot" and len(shape) != 1,
        "an embedding is of floating numbers": lambda operator, dtype: (
            SELECTIONS[operator].kernel == "embedding" and dtype not in FLOATS
        ),
    }
    more: dict[str, Any] = {
        "positions": POSITIONS,
        "index": ("int64", "int32"),
        "index_layout": interesting.INDEX_LAYOUTS,
        "elements": interesting.ELEMENTS,
    }
    further: Rules = {
        **interesting.FEW_AXES,
        **interesting.NO_SLOPE_OF_REPEATED,
        "many positions are of short rows, and of types that hold sums of so many": interesting.are_too_many,
        "many positions are of short rows": lambda shape, positions: positions is POSITIONS["many"] and math.prod(shape) > 4097,
        "one_hot of many positions is short": lambda operator, shape: operator == "one_hot" and shape[0] > 1025,
        "Paddle 3.3.1 writes the gradient of index_select at a negative position beside its memory; others take none": (
            lambda operator, positions: (
                positions is interesting.POSITIONS["from the end"]
                and SELECTIONS[operator].kernel in ("index_select", "embedding", "where", "masked_select")
            )
        ),
    }
    grid = Grid({**axes, **more}, rules, each="operator")
    return grid.with_further({**interesting.OF_SHAPES, "positions": interesting.POSITIONS}, further)


def _measure(case: Case) -> Compared:
    """Move on the device in use; of a floating type with the gradient."""
    rng, move = case.rng(), _ALL[case.operator]
    memory = case.layout.memory(case.elements(rng, case.shape, case.dtype), case.dtype)
    positions = case.positions(rng, case.shape[case.axis]) if "positions" in case.labels else None
    index = None if positions is None else case.index_layout(positions.astype(case.index))
    value, slopes = moved(lambda whole: move.formula(case.layout.view(whole), case.axis, positions))

    def call(x: paddle.Tensor) -> Any:
        return move.call(case.layout.of(x), case.axis, index)

    return computed(rng, case.dtype, call, [memory], value, None if case.operator in COPIES else slopes)


RUN = one_by_one(_measure), add_row_of(lambda case: [(_ALL[case.operator].kernel, case.dtype, "")])
