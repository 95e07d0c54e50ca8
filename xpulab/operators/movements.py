"""Operators that move elements, in numpy: shapes, parts, positions, indices, and rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from xpulab.operators.formulas import formula
from xpulab.reference.operators import rotated


def _whole(numbers: Any) -> list[int]:
    return [int(each) for each in np.atleast_1d(np.asarray(numbers, dtype="int64"))]


def _axis_of(axis: Any) -> int:
    return int(np.asarray(axis).reshape(-1)[0])


# ------------------------------------------------------------------------------------------------------- shapes and parts


@formula("exact")
def reshape(x: Any, shape: Any, *_out: Any) -> Any:
    sizes = [x.shape[place] if size == 0 and x.size else size for place, size in enumerate(_whole(shape))]
    return x.reshape(sizes)


@formula("exact")
def flatten(x: Any, start: int = 0, stop: int = -1) -> Any:
    stop = stop % max(1, x.ndim)
    return x.reshape([*x.shape[:start], -1, *x.shape[stop + 1 :]])


@formula("exact")
def transpose(x: Any, perm: Any) -> Any:
    return np.transpose(x, perm)


@formula("exact")
def squeeze(x: Any, axis: Any = ()) -> Any:
    axes = [each % x.ndim for each in _whole(axis)] if np.size(axis) else range(x.ndim)
    return x.reshape([size for place, size in enumerate(x.shape) if place not in axes or size != 1])


@formula("exact")
def unsqueeze(x: Any, axis: Any) -> Any:
    for each in _whole(axis):
        x = np.expand_dims(x, each)
    return x


@formula("exact")
def expand(x: Any, shape: Any) -> Any:
    sizes = _whole(shape)
    given = [1] * (len(sizes) - x.ndim) + list(x.shape)
    return np.broadcast_to(x, [old if new == -1 else new for new, old in zip(sizes, given, strict=True)]).copy()


@formula("exact")
def tile(x: Any, repeats: Any) -> Any:
    return np.tile(x, _whole(repeats))


@formula("exact")
def concat(parts: Any, axis: Any = 0, out: None = None) -> Any:
    return np.concatenate(list(parts), axis=_axis_of(axis))


@formula("exact")
def stack(parts: Any, axis: Any = 0, out: None = None) -> Any:
    return np.stack(list(parts), axis=_axis_of(axis))


@formula("exact")
def split(x: Any, sections: Any, axis: Any = 0) -> Any:
    axis, sizes = _axis_of(axis), _whole(sections)
    rest = x.shape[axis] - sum(size for size in sizes if size >= 0)
    return tuple(np.split(x, np.cumsum([rest if size < 0 else size for size in sizes])[:-1], axis))


@formula("exact")
def split_with_num(x: Any, num: int, axis: Any = 0) -> Any:
    return tuple(np.split(x, num, _axis_of(axis)))


@formula("exact", "unbind")
def unbind(x: Any, axis: int = 0) -> Any:
    return tuple(np.moveaxis(x, axis, 0))


@formula("exact", "tril")
def _tril(x: Any, diagonal: int = 0, out: None = None) -> Any:
    return np.tril(x, diagonal)


@formula("exact", "triu")
def _triu(x: Any, diagonal: int = 0, out: None = None) -> Any:
    return np.triu(x, diagonal)


@formula("exact", "getitem_dygraph")
def getitem(x: Any, index: Any) -> Any:
    """Only with at most one array of positions, and no integer beside it: there numpy's rules are Paddle's."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if isinstance(part, np.ndarray | list)]
    if len(arrays) > 1 or (arrays and any(isinstance(part, int) for part in parts)):
        raise NotImplementedError("several kinds of positions")
    return np.asarray(x)[index]


# -------------------------------------------------------------------------------------------------------------- positions


@formula("exact")
def embedding(ids: Any, weight: Any, padding_idx: int = -1, sparse: bool = False) -> Any:
    rows = weight[ids]
    return rows if padding_idx < 0 else np.where((ids == padding_idx)[..., None], 0.0, rows)


@formula("exact")
def gather(x: Any, index: Any, axis: Any = 0, out: None = None) -> Any:
    return np.take(x, index.reshape(-1) if index.ndim else index, axis=_axis_of(axis))


@formula("exact")
def index_select(x: Any, index: Any, axis: int = 0, out: None = None) -> Any:
    return np.take(x, index, axis=axis)


@formula("exact")
def gather_nd(x: Any, index: Any) -> Any:
    return x[tuple(np.moveaxis(index, -1, 0))]


@formula("exact")
def take_along_axis(x: Any, index: Any, axis: int = 0) -> Any:
    return np.take_along_axis(x, index, axis)


@formula("positive")
def index_add(x: Any, index: Any, value: Any, axis: int = 0) -> Any:
    total = np.moveaxis(x.copy(), axis, 0)
    np.add.at(total, index, np.moveaxis(value, axis, 0))
    return np.moveaxis(total, 0, axis)


@formula("exact")
def one_hot(x: Any, classes: Any) -> Any:
    return np.eye(_axis_of(classes))[x]


@formula("exact")
def argmax(x: Any, axis: Any = None, keepdim: bool = False, flatten: bool = False, *_others: Any) -> Any:
    axis = None if flatten or axis is None else _axis_of(axis)
    return np.argmax(x, axis=axis, keepdims=keepdim)


# -------------------------------------------------------------------------------------------- rotary position embedding


@formula("smooth")
def fused_rotary_position_embedding(
    q: Any,
    k: Any = None,
    v: Any = None,
    sin: Any = None,
    cos: Any = None,
    position_ids: Any = None,
    use_neox_rotary_style: bool = True,
    time_major: bool = False,
    rotary_emb_base: float = 10000.0,
) -> Any:
    """[batch, length, heads, width]. In Paddle, neox style rotates neighbours, the other one the two halves."""
    if time_major:
        raise NotImplementedError("time_major")
    sin, cos = _angles(q, sin, cos, position_ids, rotary_emb_base)
    return tuple(None if each is None else rotated(each, cos, sin, use_neox_rotary_style) for each in (q, k, v))


def _angles(q: Any, sin: Any, cos: Any, position_ids: Any, base: float) -> tuple[Any, Any]:
    """Sine and cosine, [batch or 1, length, 1, width]."""
    length, width = q.shape[1], q.shape[3]
    if sin is None:
        turns = np.arange(length)[:, None] / base ** (np.arange(0, width, 2) / width)
        sin, cos = (np.repeat(function(turns), 2, axis=-1)[None, :, None] for function in (np.sin, np.cos))
    sin, cos = (each.reshape(1, -1, 1, width) for each in (sin, cos))
    if position_ids is None:
        return sin[:, :length], cos[:, :length]
    return sin[0, position_ids], cos[0, position_ids]
