"""One row for any case: within bounds or to the bit, with a control of its own, shapes first, errors red."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.checks.compared import Compared, add_row, numbers
from xpulab.checks.table import Table

RIGHT = {"result": np.array([1.0, -2.0, 0.0]), "gradient": np.array([[100.0]])}
BOUND = {"result": 0.1, "gradient": np.array([[5.0]])}


def row_of(compared):
    table = Table("grid")
    add_row(table, "case", compared)
    (row,) = table.record("means", 0.0).rows
    return row.outcome, row.control


@pytest.mark.parametrize(
    "changed, outcome", [({}, "passed"), ({"gradient": [[104.9]]}, "passed"), ({"gradient": [[94.0]]}, "failed")]
)
def test_each_value_has_its_bound(changed, outcome):
    assert row_of(Compared({**RIGHT, **changed}, RIGHT, BOUND)) == (outcome, "rejected")


@pytest.mark.parametrize(
    "values",
    [
        np.array([True, False]),
        np.array([2**62], "int64"),
        np.array([1e300, 0.0]),
        np.float32(3),
        np.zeros((0, 4)),
        numbers([np.nan]),
    ],
)
def test_without_a_bound_values_are_right_to_the_bit(values):
    assert row_of(Compared({"x": values}, {"x": values})) == ("passed", "rejected")
    assert row_of(Compared({"x": values}, {"x": values}, wrong={"x": values}))[0] in (
        "broken",
        "passed",
    )  # shapes have no wrong


def test_types_names_and_shapes_count():
    one = {"x": np.ones(2, "float32")}
    assert row_of(Compared({"x": np.ones(2)}, one))[0] == "failed"
    assert row_of(Compared({"y": one["x"]}, one, {"x": 1.0}))[0] == "failed"
    assert row_of(Compared({"x": np.ones((2, 1))}, one, {"x": 1.0})) == ("failed", "rejected")


def test_a_control_that_is_within_the_bounds_proves_nothing():
    assert row_of(Compared(RIGHT, RIGHT, BOUND, wrong=RIGHT)) == ("broken", "accepted")


@pytest.mark.parametrize("error", [ValueError("no such kernel"), "RuntimeError: rank 3"])
def test_an_error_is_red(error):
    assert row_of(error) == ("failed", "rejected")
