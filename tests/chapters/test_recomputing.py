"""Steps with and without recomputation."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.memory import recomputing

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
