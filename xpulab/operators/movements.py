"""Operators that move elements, in numpy: shapes, parts and positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _whole(numbers: Any) -> list[int]:
    return [int(each) for each in np.atleast_1d(np.asarray(numbers, dtype="int64"))]


def _axis_of(axis: Any) -> int:
    return int(np.asarray(axis).reshape(-1)[0])


def _reshape(x: Any, shape: Any) -> Any:
    return x.reshape([x.shape[place] if size == 0 and x.size else size for place, size in enumerate(_whole(shape))])


def _squeeze(x: Any, axis: Any = ()) -> Any:
    axes = [each % x.ndim for each in _whole(axis)] if np.size(axis) else range(x.ndim)
    return x.reshape([size for place, size in enumerate(x.shape) if place not in axes or size != 1])


def _unsqueeze(x: Any, axis: Any) -> Any:
    for each in _whole(axis):
        x = np.expand_dims(x, each)
    return x


def _expand(x: Any, shape: Any) -> Any:
    sizes = _whole(shape)
    given = [1] * (len(sizes) - x.ndim) + list(x.shape)
    return np.broadcast_to(x, [old if new == -1 else new for new, old in zip(sizes, given, strict=True)]).copy()


def _split(x: Any, sections: Any, axis: Any = 0) -> Any:
    axis, sizes = _axis_of(axis), _whole(sections)
    rest = x.shape[axis] - sum(size for size in sizes if size >= 0)
    return tuple(np.split(x, np.cumsum([rest if size < 0 else size for size in sizes])[:-1], axis))


def _getitem(x: Any, index: Any) -> Any:
    """Only with at most one array of positions, and no integer beside it: there numpy's rules are Paddle's."""
    parts = index if isinstance(index, tuple) else (index,)
    arrays = [part for part in parts if isinstance(part, np.ndarray | list)]
    if len(arrays) > 1 or (arrays and any(isinstance(part, int) for part in parts)):
        raise NotImplementedError("several kinds of positions")
    return np.asarray(x)[index]


def _embedding(ids: Any, weight: Any, padding_idx: int = -1, sparse: bool = False) -> Any:
    rows = weight[ids]
    return rows if padding_idx < 0 else np.where((ids == padding_idx)[..., None], 0.0, rows)


MOVEMENTS: dict[str, Callable[..., Any]] = {
    "reshape": _reshape,
    "transpose": np.transpose,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "expand": _expand,
    "tile": lambda x, repeats: np.tile(x, _whole(repeats)),
    "concat": lambda parts, axis=0: np.concatenate(list(parts), axis=_axis_of(axis)),
    "stack": lambda parts, axis=0: np.stack(list(parts), axis=_axis_of(axis)),
    "split": _split,
    "tril": lambda x, diagonal=0: np.tril(x, diagonal),
    "where": np.where,
    "getitem_dygraph": _getitem,
    "embedding": _embedding,
    "gather": lambda x, index, axis=0: np.take(x, index.reshape(-1) if index.ndim else index, axis=_axis_of(axis)),
    "take_along_axis": lambda x, index, axis=0: np.take_along_axis(x, index, axis),
}
"""By operator; the arguments are those of the operator, in its order."""
