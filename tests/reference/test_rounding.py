"""The bounds of rounding: those of the tiny models stay, and deeper models get wider ones."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab import reference


def test_tiny_models_keep_their_bounds():
    assert reference.bound_of_logits(2, 30.0) == 1e-3
    assert reference.bound_of_loss(2, 0.1) == 1e-5
    assert reference.bound_of_gradients(2) == reference.bound_of_gradients(2, rounded=2) == 1e-4


def test_what_was_measured_on_thirty_layers_is_within_the_bounds():
    assert 1.0e-4 < reference.bound_of_logits(30, 37.6) < 3e-3
    assert 1.7e-5 < reference.bound_of_loss(30, 4.5) < 3e-4
    assert 5.9e-4 < reference.bound_of_gradients(30) < 2e-3
    assert 2.8e-3 < reference.bound_of_gradients(30, rounded=2) < 4e-3


def test_weights_are_converted_and_changed_when_they_are_read():
    weights = {"a": np.array([1.5], np.float32), "b": np.array([2.0], np.float32)}
    read = reference.DoublePrecision(weights, {"b": lambda name: np.array([0.25])})
    assert {name: (value.dtype, value[0]) for name, value in read.items()} == {
        "a": (np.float64, 1.5),
        "b": (np.float64, 2.25),
    }
    assert (len(read), weights["b"][0]) == (2, 2.0)


def test_the_loss_alone_is_that_of_loss_and_gradients():
    from tests.reference.test_model import IGNORED, Config, a_batch, random_weights

    config, batch = Config(), a_batch()
    weights = random_weights(config)
    expected, _ = reference.loss_and_gradients(weights, config, batch, IGNORED)
    assert reference.loss(weights, config, batch, IGNORED) == pytest.approx(expected, rel=1e-15)


def test_products_of_fewer_bits_get_wider_bounds():
    """Largest errors of the chapters' tiny models of two layers, with products in TF32 that were emulated on the CPU."""
    tf32 = {"bits": 10}
    assert 0.0186 < reference.bound_of_logits(2, 4.9, **tf32) < 0.1
    assert 2e-3 < reference.bound_of_loss(2, 4.5, **tf32) < 0.1
    assert 0.0203 < reference.bound_of_gradients(2, **tf32) < 0.05
    assert 0.0412 < reference.bound_of_gradients(2, rounded=2, **tf32) < 0.1


def test_a_product_that_keeps_all_bits_does_not_widen_them():
    assert reference.bound_of_logits(30, 37.6, bits=23) == reference.bound_of_logits(30, 37.6)
    assert reference.rounding_of_a_layer(23) == 16 * 2.0**-23 < reference.rounding_of_a_layer(21)
