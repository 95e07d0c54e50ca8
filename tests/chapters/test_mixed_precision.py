"""Mixed precision on the CPU: auto_cast changes nothing there, gradients are divided, and SGD ignores its master weights."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.chapters.numerics import mixed_precision, random_streams
from xpulab.checks.table import Table


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_auto_cast_leaves_float32_on_the_cpu(level):
    assert set(mixed_precision.types_under(level, "bfloat16").values()) == {"float32"}


def test_a_product_under_auto_cast_is_the_exact_one_on_the_cpu():
    got, rounded, exact = mixed_precision.product_under("O1", "bfloat16", 0)
    assert np.abs(got - exact).max() < 1e-4 < np.abs(rounded - exact).max()


def test_gradients_are_divided_and_infinite_ones_are_found():
    assert mixed_precision.unscaled([8.0, 16.0], 8.0) == ([1.0, 2.0], False)
    assert mixed_precision.unscaled([8.0, float("inf")], 8.0)[1]


def test_the_sgd_of_the_cpu_does_not_use_master_weights():
    table = Table("amp.table")
    mixed_precision.master_weight_row(table, "SGD", "bfloat16")
    mixed_precision.master_weight_row(table, "AdamW", "bfloat16")
    assert [row.outcome for row in table.record("means", 0.0).rows] == ["failed", "skipped"]


def test_a_step_follows_from_its_seed():
    first, again, other = (random_streams.repeated_step(seed) for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not any(np.array_equal(first[name], other[name]) for name in first if name.startswith("gradient"))
