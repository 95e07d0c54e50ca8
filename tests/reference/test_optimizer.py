"""AdamW takes the steps that its formulas give by hand."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.reference import AdamW


def an_optimizer(**changed):
    hyperparameters = {
        "beta1": 0.9,
        "beta2": 0.99,
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "max_norm": 1e9,
        "decayed": frozenset(),
    }
    return AdamW(**{**hyperparameters, **changed})


def after(optimizer, *gradients, weight=1.0, rate=0.1):
    """The weight "w" after one step for each gradient."""
    weights = {"w": np.array([weight])}
    for gradient in gradients:
        weights = optimizer.step(weights, {"w": np.array([gradient])}, rate)
    return weights["w"][0]


def test_the_second_step_by_hand():
    # first = 0.9 * 0.2 + 0.1 * 1 = 0.28, / (1 - 0.81); second = 0.99 * 0.04 + 0.01 * 1 = 0.0496, / (1 - 0.9801)
    second = 0.1 * (0.28 / 0.19) / (np.sqrt(0.0496 / 0.0199) + 1e-8)
    assert after(an_optimizer(), 2.0, 1.0) == pytest.approx(0.9 - second, rel=1e-7)


def test_epsilon_is_added_to_the_root_of_the_second_moment():
    assert after(an_optimizer(epsilon=1.0), 1.0) == pytest.approx(1 - 0.1 * 1 / (1 + 1))


def test_weight_decay_does_not_go_through_the_moments():
    optimizer = an_optimizer(weight_decay=0.5, decayed=frozenset({"w"}))
    assert after(optimizer, 2.0, weight=4.0) == pytest.approx(4.0 * (1 - 0.1 * 0.5) - 0.1, rel=1e-7)


def test_weight_decay_applies_only_to_the_named_weights():
    assert after(an_optimizer(weight_decay=0.5, decayed=frozenset({"other"})), 2.0, weight=4.0) == pytest.approx(3.9, rel=1e-7)


@pytest.mark.parametrize(("max_norm", "scale"), [(1.0, 0.2), (5.0, 1.0), (10.0, 1.0)])
def test_gradients_are_clipped_by_their_global_norm_and_never_scaled_up(max_norm, scale):
    optimizer = an_optimizer(max_norm=max_norm, epsilon=1.0)
    weights = {"a": np.zeros(1), "b": np.zeros(1)}
    moved = optimizer.step(weights, {"a": np.array([3.0]), "b": np.array([4.0])}, rate=1.0)
    scaled = scale * np.array([3.0, 4.0])
    assert np.array([moved["a"][0], moved["b"][0]]) == pytest.approx(-scaled / (scaled + 1.0))


def test_a_weight_without_a_gradient_is_kept_as_it_is():
    optimizer = an_optimizer(weight_decay=0.5, decayed=frozenset({"w", "tied"}))
    moved = optimizer.step({"w": np.ones(1), "tied": np.ones(1)}, {"w": np.ones(1)}, rate=0.1)
    assert moved["tied"][0] == 1.0
    assert moved["w"][0] != 1.0
