"""What a case of a grid computed beside what is right, and the row that compares both: the same for all grids.

    def measure(case: Case) -> Compared:
        ...
        return Compared({"result": found, "gradient": slope}, {"result": right, "gradient": right_slope}, bound)

    check.grid("numerics.products", grid, one_by_one(measure), add_row, level=level, seed=seed, means=...)

Take both as they are wherever a case gives numbers: a grid says only how far rounding may lead (`bound`) and, where it knows
better, which values are wrong on purpose (`wrong`). Texts are compared with rows.equal.
xpulab.chapters.shared.missing_kernels.add_row_of makes an add_row that skips what the device is known to lack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xpulab.checks.compare import format_error
from xpulab.checks.grid import Case
from xpulab.checks.table import Table

Values = Mapping[str, Any]
"""By name ("result", "gradient of x") an array or a number."""

_NOT_A_NUMBER, _INFINITE = 1e300, 2e300


@dataclass(frozen=True)
class Compared:
    """What a case computed.

    found: what is judged. right: the same names and shapes. bound: by name the absolute error that is allowed, above 0,
    one number or one for each element; None: found must be right to the bit, type included.
    wrong: the control, of the names and shapes of `right`; None: `wrong_values` of right.
    """

    found: Values
    right: Values
    bound: Values | None = None
    wrong: Values | None = None


def add_row(rows: Table, case: Case | str, compared: Compared | Exception | str) -> None:
    """What check.grid takes as add_row: one row, in units of the bound, or to the bit.

    Where names or shapes differ, or nothing has an element, these are compared instead. An error that one_by_one caught, or the
    text of one on ranks, is a red row. case: in a check.table the name of the row.
    """
    name = case if isinstance(case, str) else case.name
    if not isinstance(compared, Compared):
        add_error(rows, name, compared)
        return
    found, right = ({key: np.asarray(value) for key, value in each.items()} for each in (compared.found, compared.right))
    shapes, wanted = ({key: str(value.shape) for key, value in each.items()} for each in (found, right))
    if shapes != wanted or not any(value.size for value in right.values()):
        rows.equal(name, shapes, wanted, control=dict.fromkeys(wanted, "another shape"))
        return
    wrong = wrong_values(right, compared.bound) if compared.wrong is None else compared.wrong
    if compared.bound is None:
        got, exact, control = ({key: or_shape(np.asarray(each[key])) for key in right} for each in (found, right, wrong))
        rows.bitwise(name, got, exact, control=control)
    else:
        units = [in_units(each, compared.bound, right) for each in (found, right, wrong)]
        rows.close(name, units[0], units[1], atol=1.0, control=units[2])


def add_error(rows: Table, name: str, error: Exception | str) -> None:
    """A red row that shows the error."""
    rows.equal(name, error if isinstance(error, str) else format_error(error), "no error", control="another error")


def in_units(values: Values, bound: Values, names: Values) -> np.ndarray:
    """All values with these names in units of their bound, one after another, [numbers]."""
    return np.concatenate([np.ravel(np.asarray(values[name], "float64") / bound[name]) for name in names])


def wrong_values(right: Values, bound: Values | None) -> dict[str, np.ndarray]:
    """Values of which none is right: a quarter and eight bounds further from 0, or without a bound one larger."""
    if bound is None:
        return {name: other_elements(np.asarray(value)) for name, value in right.items()}
    return {name: value + np.copysign(0.25 * np.abs(value) + 8 * bound[name], value) for name, value in right.items()}


def with_one_scaled(right: Values, share: float) -> dict[str, np.ndarray]:
    """The values, of which one is wrong by a little: the largest of the first name is so many times itself."""
    values = {name: np.array(value, "float64") for name, value in right.items()}
    first = next(iter(values.values()))
    first.flat[int(np.abs(first).argmax())] *= share
    return values


def other_elements(array: np.ndarray) -> np.ndarray:
    """An array of the same type of which every element is another."""
    if array.dtype == bool:
        return ~array
    larger = array + array.dtype.type(1)
    return np.asarray(np.where(larger == array, -array, larger), array.dtype)


def or_shape(array: np.ndarray) -> np.ndarray:
    """The array; of an empty one, which equals nothing, its shape."""
    return array if array.size else np.array([*array.shape])


def numbers(values: Any) -> np.ndarray:
    """In double precision, to be compared to the bit: NaN and infinity as numbers that nothing else has, no zero negative."""
    doubles = np.asarray(values, "float64")
    return np.nan_to_num(doubles, nan=_NOT_A_NUMBER, posinf=_INFINITE, neginf=-_INFINITE) + 0.0
