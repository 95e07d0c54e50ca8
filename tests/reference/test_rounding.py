"""The bounds of rounding: those of the tiny models stay, and deeper models get wider ones."""

from __future__ import annotations

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


def test_products_of_fewer_bits_get_wider_bounds():
    """Largest errors of the chapters' tiny models of two layers, with products in TF32 that were emulated on the CPU."""
    tf32 = {"bits": 10}
    assert 0.0186 < reference.bound_of_logits(2, 4.9, **tf32) < 0.1
    assert 2e-3 < reference.bound_of_loss(2, 4.5, **tf32) < 0.1
    assert 0.0203 < reference.bound_of_gradients(2, **tf32) < 0.05
    assert 0.0412 < reference.bound_of_gradients(2, rounded=2, **tf32) < 0.1
