"""Attributes that are infinite or NaN, and types of numbers: what comes back when a formula is exported and loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.export.export_programs import Formula, compute
from xpulab.release.export.samples import ROWS, WIDTH, export, numbers

REFUSED = "refused"
"""What takes the place of a result when a program cannot be loaded or run."""

GIVEN = numbers(3, WIDTH)
"""The argument of every formula, [3, 8]."""

Maker = Callable[[float], Callable[[Any], Any]]

FORMULAS: dict[str, Maker] = {
    "full": lambda value: lambda x: x + paddle.full([WIDTH], value),
    "where": lambda value: lambda x: paddle.where(x > 0, x, paddle.full_like(x, value)),
    "scale": lambda value: lambda x: paddle.scale(x, value),
}
"""By name: from a value, a function whose program has that value as an attribute, and whose result is then not finite."""

EXACT: dict[str, tuple[str, float, float]] = {
    "third, float32": ("float32", 1 / 3, 1 / 3 + 2**-25),
    "third, float64": ("float64", 1 / 3, 1 / 3 + 2**-54),
    "smallest, float32": ("float32", 2.0**-149, 0.0),
    "minus zero": ("float32", -0.0, 0.0),
    "2^53, int64": ("int64", 2**53, 2**53 - 1),
    "2^53 + 1, int64": ("int64", 2**53 + 1, 2**53),
    "largest, int64": ("int64", 2**63 - 1, 2**63 - 2),
}
"""By name: a type, a number that needs all of its bits, and its neighbour or another number."""

TYPES = ("float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32", "int64", "bool")


def cast_to(dtype: Any) -> Formula:
    """A layer that casts four times its argument to a type and back."""
    return Formula(lambda x: (4 * x).astype(dtype).astype("float32"))


def constant(dtype: Any, value: float) -> Formula:
    """A layer that returns a number which is an attribute of its program, in the shape of the argument."""
    return Formula(lambda x: paddle.where(x > WIDTH, x.astype(dtype), paddle.full([WIDTH], value, dtype)))


def in_a_program(layer: Any, path: Path) -> tuple[np.ndarray, list[str]] | str:
    """The result of the exported and loaded layer for GIVEN, and the types of its weights; REFUSED when it cannot run."""
    try:
        loaded = paddle.jit.load(export(layer, path, ROWS))
        return compute(loaded, [GIVEN]), [str(each.dtype) for each in loaded.state_dict().values()]
    except (RuntimeError, ValueError):
        return REFUSED


def eager(layer: Any) -> np.ndarray:
    """The result of the layer itself for GIVEN."""
    return compute(layer, [GIVEN])


def kinds(result: tuple[np.ndarray, Sequence[str]] | np.ndarray | str) -> list[list[str]] | str:
    """For each element "finite", "NaN", "+inf" or "-inf"; REFUSED stays what it is."""
    if isinstance(result, str):
        return result
    found = result[0] if isinstance(result, tuple) else result
    marks = np.select([np.isnan(found), found == np.inf, found == -np.inf], ["NaN", "+inf", "-inf"], "finite")
    return marks.tolist()
