"""The reference implementation of a mixture-of-experts layer: its rules by hand, its gradients by finite differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from xpulab.reference import moe

STEP = 1e-6


@pytest.fixture
def layer():
    draw = np.random.default_rng(3)
    x = draw.standard_normal((7, 5))
    return x, moe.Weights(draw.standard_normal((5, 4)), draw.standard_normal((4, 5, 3)), draw.standard_normal((4, 3, 5)))


def total(x, weights, k, capacity, g, factor):
    output, routing = moe.forward(x, weights, k, capacity)
    return float((output * g).sum() + factor * moe.auxiliary_loss(routing))


def slope(of, array):
    """The gradient of of(array) by central differences."""
    result = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        ends = []
        for sign in (1, -1):
            moved = array.copy()
            moved[place] += sign * STEP
            ends.append(of(moved))
        result[place] = (ends[0] - ends[1]) / (2 * STEP)
    return result


@pytest.mark.parametrize("k, capacity", [(1, 7), (2, 7), (3, 7), (1, 1), (2, 2), (2, 0)])
def test_the_gradients_are_those_of_finite_differences(layer, k, capacity):
    x, weights = layer
    g = np.random.default_rng(4).standard_normal(x.shape)
    of_x, of_weights = moe.gradients(x, weights, k, capacity, g, 0.7)
    np.testing.assert_allclose(of_x, slope(lambda each: total(each, weights, k, capacity, g, 0.7), x), atol=1e-7)
    for name in ("gate", "up", "down"):
        measured = slope(
            lambda each, name=name: total(x, replace(weights, **{name: each}), k, capacity, g, 0.7), getattr(weights, name)
        )
        np.testing.assert_allclose(getattr(of_weights, name), measured, atol=1e-7)


def test_first_choices_come_before_second_ones():
    chosen = np.array([[0, 1], [1, 0], [0, 1]])
    assert moe.places(chosen, 2).tolist() == [[0, 1], [0, 2], [1, 2]]


def test_weights_of_two_experts_add_up_to_one_and_that_of_one_is_its_probability(layer):
    x, weights = layer
    np.testing.assert_allclose(moe.route(x, weights.gate, 2, 7).weights.sum(axis=1), 1)
    single = moe.route(x, weights.gate, 1, 7)
    np.testing.assert_allclose(single.weights[:, 0], single.chances.max(axis=1))


def test_the_auxiliary_loss_is_one_at_balance_and_the_number_of_experts_at_collapse():
    even = moe.Routing(np.full((4, 4), 0.25), np.arange(4)[:, None], np.ones((4, 1)), np.ones((4, 1), bool))
    one = moe.Routing(np.eye(4)[[2, 2, 2]], np.full((3, 1), 2), np.ones((3, 1)), np.ones((3, 1), bool))
    assert (moe.auxiliary_loss(even), moe.auxiliary_loss(one)) == (1.0, 4.0)


def test_a_token_that_every_expert_drops_has_output_zero_and_no_gradient_of_its_experts(layer):
    x, weights = layer
    output, routing = moe.forward(x, weights, 1, 1)
    dropped = ~routing.kept[:, 0]
    assert dropped.any() and not output[dropped].any()
    of_x, _ = moe.gradients(x, weights, 1, 1, np.ones_like(x))
    assert not of_x[dropped].any()


@pytest.mark.parametrize("tokens, factor, capacity", [(8, 1.0, 4), (9, 1.0, 5), (8, 1.25, 5), (0, 1.0, 0)])
def test_capacity_is_rounded_up(tokens, factor, capacity):
    assert moe.capacity_of(tokens, 4, 2, factor) == capacity
