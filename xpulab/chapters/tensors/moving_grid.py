"""Operators that move elements on grids: reshape, concat, tile, gather, scatter and their kin, with gradients, beside numpy.

    check.grid("indexing.moves", moves(), *RUN, level=level, seed=seed, means=...)

Reference implementation: each operator is applied by numpy to the places that elements have in memory. The result are the
elements at these places, the gradient adds each weight at its place; both are exact, and compared to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.index_grids import (
    EMPTY,
    FLOATS,
    LAYOUTS,
    OF_LAYOUTS,
    SHAPES,
    TYPES,
    drawn,
    tensor_of,
    to_numpy,
    weights,
)
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one

NOTHING = -1
"""The place of an element that is 0, as below the diagonal of triu."""


@dataclass(frozen=True)
class Move:
    """An operator that copies elements.

    call: Paddle's, of a tensor, an axis and positions (None in moves); returns a tensor or several. places: the same in numpy,
    of an array of places, where NOTHING stands for 0. axes: how many the tensor needs. kernel: Paddle's name of it.
    """

    call: Callable[..., Any]
    places: Callable[..., Any]
    kernel: str
    axes: int = 1


def _order(ndim: int) -> list[int]:
    """Axes in an order that is not its own inverse, of three and more."""
    return [*range(1, ndim), 0]


MOVES = {
    "reshape": Move(lambda x, axis, _: x.reshape([-1]), lambda at, axis, _: at.reshape(-1), "reshape", 0),
    "flatten": Move(lambda x, axis, _: x.flatten(), lambda at, axis, _: at.reshape(-1), "flatten", 0),
    "transpose": Move(
        lambda x, axis, _: x.transpose(_order(x.ndim)), lambda at, axis, _: at.transpose(_order(at.ndim)), "transpose"
    ),
    "unsqueeze": Move(lambda x, axis, _: x.unsqueeze(axis), lambda at, axis, _: np.expand_dims(at, axis), "unsqueeze", 0),
    "squeeze": Move(lambda x, axis, _: x.unsqueeze(axis).squeeze(axis), lambda at, axis, _: at, "squeeze", 0),
    "expand": Move(
        lambda x, axis, _: x.unsqueeze(0).expand([3, *x.shape]),
        lambda at, axis, _: np.broadcast_to(at, (3, *at.shape)),
        "expand",
        0,
    ),
    "tile": Move(
        lambda x, axis, _: paddle.tile(x, [2] * (x.ndim + 1)), lambda at, axis, _: np.tile(at, [2] * (at.ndim + 1)), "tile", 0
    ),
    "concat": Move(
        lambda x, axis, _: paddle.concat([x, x, x], axis=axis),
        lambda at, axis, _: np.concatenate([at] * 3, axis=axis),
        "concat",
    ),
    "stack": Move(
        lambda x, axis, _: paddle.stack([x, x], axis=axis), lambda at, axis, _: np.stack([at, at], axis=axis), "stack", 0
    ),
    "split": Move(
        lambda x, axis, _: paddle.split(x, [1, -1], axis=axis), lambda at, axis, _: np.split(at, [1], axis=axis), "split"
    ),
    "unbind": Move(lambda x, axis, _: paddle.unbind(x, axis), lambda at, axis, _: list(np.moveaxis(at, axis, 0)), "unbind"),
    "flip": Move(lambda x, axis, _: paddle.flip(x, [axis]), lambda at, axis, _: np.flip(at, axis), "flip"),
    "roll": Move(lambda x, axis, _: paddle.roll(x, 2, axis), lambda at, axis, _: np.roll(at, 2, axis), "roll"),
    "tril": Move(lambda x, axis, _: paddle.tril(x, axis), lambda at, axis, _: np.tril(at - NOTHING, axis) + NOTHING, "tril", 2),
    "triu": Move(lambda x, axis, _: paddle.triu(x, axis), lambda at, axis, _: np.triu(at - NOTHING, axis) + NOTHING, "triu", 2),
    "repeat_interleave": Move(
        lambda x, axis, _: paddle.repeat_interleave(x, 3, axis=axis),
        lambda at, axis, _: np.repeat(at, 3, axis=axis),
        "repeat_interleave",
    ),
    "pad": Move(
        lambda x, axis, _: F.pad(x, [1, 2] * x.ndim),
        lambda at, axis, _: np.pad(at, (1, 2), constant_values=NOTHING),
        "pad",
    ),
}
"""Operators without an index."""


def _padded(row: int) -> Move:
    """An embedding of which this row is padding: it is read as zeros, and has no gradient."""
    return Move(
        lambda x, axis, index: F.embedding(index, x, padding_idx=row),
        lambda at, axis, index: np.where((index == row % len(at))[:, None], NOTHING, at[index]),
        "embedding",
        2,
    )


def _where_hot(hot: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    return paddle.where(hot == 1, x, hot.astype(x.dtype))


SELECTIONS = {
    "gather": Move(
        lambda x, axis, index: paddle.gather(x, index, axis), lambda at, axis, index: np.take(at, index, axis), "gather"
    ),
    "index_select": Move(
        lambda x, axis, index: paddle.index_select(x, index, axis),
        lambda at, axis, index: np.take(at, index, axis),
        "index_select",
    ),
    "gather_nd": Move(
        lambda x, axis, index: paddle.gather_nd(x, index.unsqueeze(-1)), lambda at, axis, index: at[index], "gather_nd"
    ),
    "take_along_axis": Move(
        lambda x, axis, index: paddle.take_along_axis(x, _beside(x, axis, index), axis, broadcast=False),
        lambda at, axis, index: np.take(at, index, axis),
        "take_along_axis",
    ),
    "index_sample": Move(
        lambda x, axis, index: paddle.index_sample(x, index.expand([x.shape[0], index.shape[0]])),
        lambda at, axis, index: at[:, index],
        "index_sample",
        2,
    ),
    "masked_select": Move(
        lambda x, axis, index: paddle.masked_select(x, paddle.to_tensor(_is_chosen(x.shape, axis, index.numpy()))),
        lambda at, axis, index: at[_is_chosen(at.shape, axis, index)],
        "masked_select",
    ),
    "embedding": Move(lambda x, axis, index: F.embedding(index, x), lambda at, axis, index: at[index], "embedding", 2),
    "embedding, the last row is padding": _padded(-1),
    "embedding, row 1 is padding": _padded(1),
    "one_hot": Move(
        lambda x, axis, index: _where_hot(F.one_hot(index, x.shape[0]), x),
        lambda at, axis, index: np.where(index[:, None] == np.arange(len(at)), at, NOTHING),
        "where",
    ),
}
"""Operators that read at positions of one axis; one_hot selects an element of each row, as the gate of a mixture of experts."""


def _is_chosen(shape: Sequence[int], axis: int, index: np.ndarray) -> np.ndarray:
    """A mask of this shape of the places whose position along the axis is among these."""
    sizes = [1] * len(shape)
    sizes[axis] = shape[axis]
    return np.array(np.broadcast_to(np.isin(np.arange(shape[axis]), index).reshape(sizes), shape))


def _beside(x: paddle.Tensor, axis: int, index: paddle.Tensor) -> paddle.Tensor:
    """The positions along the axis, the same for every other place of x."""
    shape = [1] * x.ndim
    shape[axis] = index.shape[0]
    whole = list(x.shape)
    whole[axis] = index.shape[0]
    return index.reshape(shape).expand(whole)


POSITIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "different": lambda rng, size: rng.permutation(size)[:3],
    "repeated": lambda rng, size: np.repeat(rng.permutation(size)[:2], 3),
    "one": lambda rng, size: rng.integers(0, size, 1),
    "many": lambda rng, size: rng.integers(0, size, 1025),
    "the last": lambda rng, size: np.array([size - 1, size - 1]),
    "none": lambda rng, size: np.zeros(0, int),
}

AXES = {"first": 0, "last": -1}

RULES: dict[str, Callable[..., bool]] = {
    **OF_LAYOUTS,
    "the operator needs its axes": lambda operator, shape: len(shape) < (MOVES | SELECTIONS)[operator].axes,
    "the device has no kernel for this type": lambda operator, dtype: _is_lacked((MOVES | SELECTIONS)[operator].kernel, dtype),
    "nothing is split into two or unbound": lambda operator, shape: operator in ("split", "unbind")
    and (0 in shape or 1 in shape),
}


def _is_lacked(kernel: str, dtype: str) -> bool:
    """Whether the device in use is known to have no kernel for the operator, or for a part of its gradient."""
    used = [(kernel, "")]
    if dtype in FLOATS:
        used += [(kernel, "gradient"), *([("add", "")] if kernel in ("concat", "stack") else [])]
    return any(lacked(name, dtype, form) for name, form in used)


def moves(types: Sequence[str] = TYPES) -> Grid:
    """The grid of operators without an index, on the device in use. types: those of the tensor."""
    axes: dict[str, Any] = {"operator": tuple(MOVES), "dtype": types, "layout": LAYOUTS, "shape": SHAPES, "axis": AXES}
    return Grid(axes, RULES, EMPTY, each="operator")


def selections(types: Sequence[str] = TYPES) -> Grid:
    """The grid of operators that read at positions, on the device in use. types: those of the tensor."""
    axes: dict[str, Any] = {"operator": tuple(SELECTIONS), "dtype": types, "layout": LAYOUTS, "shape": SHAPES, "axis": AXES}
    rules: dict[str, Callable[..., bool]] = {
        **RULES,
        "nothing is read from an axis without elements": lambda shape: 0 in shape,
        "this operator reads rows": lambda operator, axis: (
            SELECTIONS[operator].kernel in ("gather_nd", "embedding", "where") and axis != 0
        ),
        "index_sample reads each row of a matrix": lambda operator, shape, axis: (
            operator == "index_sample" and (len(shape) != 2 or axis == 0)
        ),
        "an embedding has rows": lambda operator, shape: SELECTIONS[operator].kernel == "embedding" and len(shape) != 2,
        "a row of one_hot has one axis": lambda operator, shape: operator == "one_hot" and len(shape) != 1,
        "an embedding is of floating numbers": lambda operator, dtype: (
            SELECTIONS[operator].kernel == "embedding" and dtype not in FLOATS
        ),
    }
    return Grid({**axes, "positions": POSITIONS, "index": ("int64", "int32")}, rules, each="operator")


def _measure(case: Case) -> Compared:
    """Move on the device in use; of a floating type with the gradient of sum(result * weight)."""
    rng, move = case.rng(), (MOVES | SELECTIONS)[case.operator]
    whole = drawn(rng, case.layout.whole(case.shape), case.dtype)
    at = case.layout.view(np.arange(whole.size).reshape(whole.shape))
    numbers = case.positions(rng, case.shape[case.axis]) if "positions" in case.labels else None
    places = _several(move.places(at, case.axis, numbers))
    memory = tensor_of(whole, case.dtype)
    memory.stop_gradient = case.dtype not in FLOATS
    index = None if numbers is None else paddle.to_tensor(numbers.astype(case.index))
    results = _several(move.call(case.layout.view(memory), case.axis, index))
    elements = np.append(whole.ravel(), np.zeros(1, whole.dtype))
    right = {f"result {number}": elements[each] for number, each in enumerate(places)}
    found = {f"result {number}": to_numpy(each) for number, each in enumerate(results)}
    if case.dtype in FLOATS:
        added = [weights(rng, each.shape, case.dtype) for each in places]
        slope = np.zeros(whole.size + 1, "float32")
        for each, weight in zip(places, added, strict=True):
            np.add.at(slope, each.ravel(), weight.ravel())
        right["gradient"] = slope[:-1].reshape(whole.shape)
        (gradient,) = paddle.grad(results, [memory], [tensor_of(weight, case.dtype) for weight in added])
        found["gradient"] = gradient.astype("float32").numpy()
    return Compared(found, right)


def _several(result: Any) -> list[Any]:
    return list(result) if isinstance(result, list | tuple) else [result]


RUN = one_by_one(_measure), add_row_of(lambda case: [((MOVES | SELECTIONS)[case.operator].kernel, case.dtype, "")])
"""What check.grid takes as run and add_row, for moves and selections."""
