"""By how much fused_dropout_add must multiply what it keeps, and that Paddle's function warns that it falls back."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.memory.fused_dropout import fused_and_parts, scale_of, value_rows, warnings_of_the_fallback
from xpulab.checks.table import Table

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


@pytest.mark.parametrize(
    ("mode", "training", "expected"),
    [
        ("upscale_in_train", True, 4.0),
        ("upscale_in_train", False, 1.0),
        ("downscale_in_infer", True, 1.0),
        ("downscale_in_infer", False, 0.25),
    ],
)
def test_the_scale_keeps_the_mean(mode, training, expected):
    assert scale_of(0.75, mode, training) == expected


def test_nothing_is_scaled_where_nothing_is_kept():
    assert scale_of(1.0, "upscale_in_train", True) == 1.0


def test_rows_pass_on_a_right_operator():
    rows = Table("fused-ops.tried")
    value_rows(rows, "function", "float32", 5)
    assert rows.record("tried", 0.0).outcome == "passed"


def test_each_call_hears_the_warning_again():
    assert [len(warnings_of_the_fallback()) for _ in range(2)] == [1, 1]


def test_another_seed_gives_another_mask():
    fused, parts, other = fused_and_parts(0.5, 3)
    assert np.array_equal(fused, parts)
    assert not np.array_equal(fused, other)
