"""Indices of truth values that are no mask of several axes: Python's True and False, 0-d tensors, lists and arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import paddle

from xpulab.checks.compared import Compared, add_error, add_row
from xpulab.checks.table import Table

ARRAY = np.arange(12, dtype="float32").reshape(3, 4)
ROWS = [True, False, True]

INDICES: dict[str, Any] = {
    "True": True,
    "False": False,
    "0-d True": np.array(True),
    "0-d False": np.array(False),
    "True, integer": (True, 1),
    "new axis, True": (None, True),
    "slice, True": (slice(None), True),
    "list": ROWS,
    "list, one True": [False, True, False],
    "list without True": [False] * 3,
    "integer, list": (0, [True, False, True, False]),
    "ellipsis, list": (..., [True, False, False, True]),
    "list of lists": (ARRAY > 4).tolist(),
    "array of rows": np.array(ROWS),
    "array": ARRAY > 4,
}
"""By name an index as numpy takes it. Paddle gets the same, and of an array without axes a tensor."""


def add_rows(rows: Table) -> None:
    """For each index: what is read and its gradient, and what writing a number and a tensor leaves. Controls differ by 1."""
    for name, index in INDICES.items():
        ours = paddle.to_tensor(index) if isinstance(index, np.ndarray) and not index.ndim else index
        read = ARRAY[index]
        slope, numbered, assigned = np.zeros_like(ARRAY), ARRAY.copy(), ARRAY.copy()
        np.add.at(slope, index, 2.0)
        numbered[index] = -1.0
        assigned[index] = -read
        _add_row(rows, f"{name}, read", partial(_read, ours), read)
        _add_row(rows, f"{name}, gradient", partial(_gradient, ours), slope)
        for how, value, expected in (("a number", -1.0, numbered), ("a tensor", paddle.to_tensor(-read), assigned)):
            _add_row(rows, f"{name}, write {how}", partial(_written, ours, value), expected)


def _add_row(rows: Table, name: str, call: Callable[[], Any], expected: np.ndarray) -> None:
    try:
        add_row(rows, name, Compared({"": call().numpy()}, {"": expected}))
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        add_error(rows, name, error)


def _read(index: Any) -> Any:
    return paddle.to_tensor(ARRAY)[index]


def _gradient(index: Any) -> Any:
    x = paddle.to_tensor(ARRAY, stop_gradient=False)
    (x[index] * 2.0).sum().backward()
    return x.grad


def _written(index: Any, value: Any) -> Any:
    x = paddle.to_tensor(ARRAY)
    x[index] = value
    return x
