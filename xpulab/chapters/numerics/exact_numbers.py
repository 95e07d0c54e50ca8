"""A row that compares arrays of numbers to the bit, NaN and infinity included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from xpulab.checks.table import Table

LARGE = 1e300
"""Stands for NaN, and twice of it for infinity, which equal nothing."""


def add_numbers(
    rows: Table,
    name: str,
    found: Sequence[np.ndarray],
    right: Sequence[np.ndarray],
    wrong: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Add a row: the shapes where they differ or nothing has an element, else every number.

    wrong: makes the control of the right numbers, in one flat array.
    """
    shapes, wanted = ([list(each.shape) for each in arrays] for arrays in (found, right))
    if shapes != wanted or not any(each.size for each in right):
        rows.equal(name, shapes, wanted, control=[[*shape, 2] for shape in wanted])
        return
    got, exact = (np.concatenate([_finite(each).ravel() for each in arrays]) for arrays in (found, right))
    rows.equal(name, got, exact, control=wrong(exact))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.nan_to_num(values, nan=LARGE, posinf=2 * LARGE, neginf=-2 * LARGE)
