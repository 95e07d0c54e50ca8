"""Tensors whose elements are not in one block of memory, or not in order, and every way to copy them.

Offered: LAYOUTS, TYPES, views_of, copies, flat.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.device import Device, card_count

SHAPE = (6, 8, 10)
"""Of the tensor from which all layouts are made."""

LAYOUTS: dict[str, tuple[Callable[[paddle.Tensor], paddle.Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "contiguous": (lambda x: x, lambda a: a),
    "transposed": (lambda x: x.transpose([2, 0, 1]), lambda a: a.transpose(2, 0, 1)),
    "slice of the first axis": (lambda x: x[2:5], lambda a: a[2:5]),
    "slice of the last axis": (lambda x: x[..., 3:9], lambda a: a[..., 3:9]),
    "every third element": (lambda x: x[:, :, ::3], lambda a: a[:, :, ::3]),
    "backwards": (lambda x: x.flip(1), lambda a: a[:, ::-1]),
    "one row": (lambda x: x[4, 1], lambda a: a[4, 1]),
    "one column": (lambda x: x[:, 3, 7], lambda a: a[:, 3, 7]),
    "transposed slice": (lambda x: x[1:5, :, 2:7].transpose([1, 2, 0]), lambda a: a[1:5, :, 2:7].transpose(1, 2, 0)),
    "broadcast": (lambda x: x[:, :1].expand([6, 5, 10]), lambda a: np.broadcast_to(a[:, :1], (6, 5, 10))),
    "new axis": (lambda x: x.unsqueeze(1), lambda a: a[:, None]),
    "reshaped": (lambda x: x.reshape([12, 40]), lambda a: a.reshape(12, 40)),
    "diagonal": (lambda x: paddle.diagonal(x, axis1=0, axis2=1), lambda a: np.diagonal(a, axis1=0, axis2=1)),
    "empty": (lambda x: x[:, 4:4], lambda a: a[:, 4:4]),
    "one element": (lambda x: x[3:4, 2:3, 1:2], lambda a: a[3:4, 2:3, 1:2]),
    "0-d": (lambda x: x[3, 2, 1], lambda a: a[3, 2, 1]),
}
"""By name a view of a tensor of SHAPE, and the same of an array."""

TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64")
"""The types whose copies are compared; together they have every size of an element."""

ARRAY_TYPES = {"bfloat16": "float32", "float16": "float32"}
"""By type the one of arrays with the same values, where it is another one."""


def views_of(dtype: Any, seed: int) -> list[tuple[paddle.Tensor, np.ndarray]]:
    """Each layout of random values of this type, as a view of one tensor and as an array of the same values.

    Without layouts for whose operator the device has no kernel in this type.
    """
    values = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 120, SHAPE)
    array = (values * (1 + 1j) if dtype == "complex64" else values).astype(ARRAY_TYPES.get(dtype, dtype))
    tensor, found = paddle.to_tensor(array).astype(dtype), []
    for view, of_array in LAYOUTS.values():
        with suppress(RuntimeError):  # no kernel for paddle.diagonal in int8
            found.append((view(tensor), of_array(array)))
    return found


def flat(arrays: Iterable[paddle.Tensor | np.ndarray]) -> np.ndarray:
    """Shapes and elements of all arrays, one after another, [numbers], as complex numbers: exact for each type."""
    parts: list[np.ndarray] = []
    for each in arrays:
        if isinstance(each, paddle.Tensor):
            half = each.dtype in (paddle.float16, paddle.bfloat16)
            array = each.astype("float32").numpy() if half else each.numpy()
        else:
            array = each
        parts += [np.array([array.ndim, *array.shape]), array.reshape(-1)]
    return np.concatenate(parts).astype("complex128")


def _file(x: paddle.Tensor, folder: Path) -> paddle.Tensor:
    paddle.save({"x": x}, str(folder / "layout.pdparams"))
    return paddle.load(str(folder / "layout.pdparams"))["x"]


def copies(here: Device, folder: Path) -> dict[str, Callable[[paddle.Tensor], paddle.Tensor]]:
    """By name every way to copy a tensor on this device; between cards only where there are two. folder: for files."""
    ways: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
        "clone": lambda x: x.clone(),
        "contiguous": lambda x: x.contiguous(),
        "assign": paddle.assign,
        "to the host": lambda x: x.cpu(),
        "to a numpy array and back": lambda x: paddle.to_tensor(x.numpy(), dtype=x.dtype),
        "file": lambda x: _file(x, folder),
        "copy_": lambda x: _copied(paddle.zeros(x.shape, x.dtype), x),
        "set_value": lambda x: _set(paddle.zeros(x.shape, x.dtype), x),
    }
    if here.name != "cpu" and card_count(here.name) > 1:
        ways["to another card"] = lambda x: x.to(f"{here.name}:1")
    return ways


def _copied(target: Any, x: paddle.Tensor) -> paddle.Tensor:
    target.copy_(x, True)
    return target


def _set(target: paddle.Tensor, x: paddle.Tensor) -> paddle.Tensor:
    target.set_value(x)
    return target
