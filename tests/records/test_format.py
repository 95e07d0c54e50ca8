"""Measured values are shown with units."""

from __future__ import annotations

import pytest

from xpulab.records.format import format_measured
from xpulab.records.record import Measurement, Record, Row


def rows(*values):
    return tuple(Row(f"case {number}", "passed", value, "< 1", "rejected") for number, value in enumerate(values))


@pytest.mark.parametrize(
    ("measurement", "text"),
    [
        (Measurement("host to device", "rate", "GB/s", (1.0594812,)), "host to device 1.059 GB/s"),
        (Measurement("matmul", "rate", "GFLOP/s", (75.3,)), "matmul 75.3 GFLOP/s"),
        (Measurement("matmul", "rate", "GFLOP/s", (312_000.0,)), "matmul 312 TFLOP/s"),
        (Measurement("peak", "memory", "bytes", (3 * 2.0**20,)), "peak 3.0 MiB"),
        (Measurement("losses", "loss", "nats", (6.2, 3.1, 0.01)), "losses 6.2 to 0.01 nats over 3 steps"),
    ],
)
def test_a_measurement_has_its_unit(measurement, text):
    assert format_measured(Record("a.b", "skipped", "no baseline", measurements=(measurement,))) == text


@pytest.mark.parametrize(
    ("measured", "values", "text"),
    [
        ("3 of 3 rows", (1e-7, 0.0, 3.25e-6), "3 of 3 rows, 0 to 3.25e-06"),
        ("2 of 2 rows", ("x", "y"), "2 of 2 rows"),
        (0.123456789, (), "0.1235"),
        ("5 of 5", (), "5 of 5"),
        (None, (), ""),
        (0.0, (), "0"),
    ],
)
def test_a_value_is_rounded_and_a_table_shows_the_range_of_its_rows(measured, values, text):
    assert format_measured(Record("a.b", "passed", "it holds", measured, rows=rows(*values))) == text
