"""Steps with and without recomputation, and dropout in one operator."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.checks.table import Table
from xpulab.notebook import fused_dropout, recomputing
from xpulab.notebook.fused_buffers import Slot, overlaps, why_not

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


@pytest.mark.parametrize("form", recomputing.FORMS)
def test_every_form_repeats_to_the_bit(form):
    first, second = (recomputing.step(form, recomputing.at_once, 3).gradients for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_other_masks_give_other_gradients():
    first = recomputing.step("dropout", recomputing.at_once, 3).gradients
    other = recomputing.step("dropout", recomputing.with_other_masks, 3).gradients
    assert not np.array_equal(first["up.weight"], other["up.weight"])


def test_a_recomputed_block_runs_twice():
    assert recomputing.step("dropout", recomputing.recompute, 3).calls == 2


@pytest.mark.parametrize(("frozen", "trained"), [("nothing", {"up", "down", "scale", "input"}), ("inputs", {"up", "down"})])
def test_what_is_frozen_has_no_gradient(frozen, trained):
    found = recomputing.frozen_step(frozen, recomputing.at_once, 3)
    assert {name for name, value in found.items() if value is not None} == trained


def test_an_error_becomes_nan_in_the_shape_of_what_was_expected():
    def refuse():
        raise TypeError("no")

    assert np.isnan(recomputing.or_nan(refuse, np.ones([2, 3]))).shape == (2, 3)
    assert [each.shape for each in recomputing.or_nan(refuse, [np.ones(1), np.ones(2)])] == [(1,), (2,)]
    assert recomputing.or_nan(lambda: 5, np.ones(1)) == 5


@pytest.mark.parametrize(
    ("p", "mode", "training", "scale"),
    [
        (0.5, "upscale_in_train", True, 2.0),
        (0.5, "upscale_in_train", False, 1.0),
        (0.25, "downscale_in_infer", False, 0.75),
        (0.25, "downscale_in_infer", True, 1.0),
        (1.0, "upscale_in_train", True, 1.0),
    ],
)
def test_the_scale_of_what_dropout_keeps(p, mode, training, scale):
    assert fused_dropout.scale_of(p, mode, training) == scale


def test_fused_dropout_rows_pass_on_a_right_operator():
    rows = Table("fused-ops.tried")
    fused_dropout.value_rows(rows, "function", "float32", 5)
    assert rows.record("tried", 0.0).outcome == "passed"


def test_slots_that_share_bytes_overlap():
    assert overlaps([Slot(256, 28), Slot(0, 140)]) == 0
    assert overlaps([Slot(0, 140), Slot(128, 28)]) == 12


def test_simulated_cards_have_no_fused_buffers():
    assert "new memory" in why_not("sim", 2)
    assert why_not("gpu", 1) == "it needs two cards"
    assert why_not("cpu", 1) == why_not("gpu", 2) == ""
