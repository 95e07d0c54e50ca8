"""Rows for single types, sizes and attributes: right on the CPU, and red for a wrong kernel."""

from __future__ import annotations

import paddle
import pytest

from xpulab.chapters.numerics import edge_operators
from xpulab.checks.table import Table

pytestmark = pytest.mark.unit

ROWS = {
    "labels": lambda rows: edge_operators.ignored_label_rows(rows, "float32", 0),
    "activations": lambda rows: edge_operators.far_activation_rows(rows, "float32"),
    "gradients": lambda rows: edge_operators.gradient_rows(rows, "float32", 0),
    "mean": lambda rows: edge_operators.integer_mean_row(rows, "int32"),
    "fills": lambda rows: edge_operators.fill_rows(rows, [1, 63, 65, 257]),
}


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


def record(add):
    """The record of a table with these rows."""
    rows = Table("edges.table")
    add(rows)
    return rows.record("means", 0.0)


@pytest.mark.parametrize("name", ROWS)
def test_the_cpu_is_right_in_every_row(name):
    assert {row.outcome for row in record(ROWS[name]).rows} == {"passed"}


def test_each_size_counts(monkeypatch):
    real = paddle.ones

    def short(shape, dtype):
        filled = real(shape, dtype)
        if shape == [65]:
            filled[-1] = 0
        return filled

    monkeypatch.setattr(paddle, "ones", short)
    failed = {row.case.partition(",")[0] for row in record(ROWS["fills"]).rows if row.outcome == "failed"}
    assert failed == {"ones"}


def test_every_size_is_filled_at_a_long_level_and_those_around_powers_of_two_always():
    few, every = edge_operators.sizes_to_fill(False), edge_operators.sizes_to_fill(True)
    assert set(few) <= set(every) and every == list(range(1, edge_operators.COUNT + 1))
    assert {1, 255, 256, 257, 1023, 1025, 4095, 4097, edge_operators.COUNT} <= set(few)
