"""The formulas of kernels have the gradients that finite differences show."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.reference import kernels

RNG = np.random.default_rng(0)
STEP = 1e-6


def slopes(function, arrays, g):
    """The gradient of (function(*arrays) * g).sum() for each array, by central differences in every element."""
    found = []
    for index, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            sides = []
            for step in (STEP, -STEP):
                moved = array.copy()
                moved[place] += step
                sides.append((function(*arrays[:index], moved, *arrays[index + 1 :]) * g).sum())
            slope[place] = (sides[0] - sides[1]) / (2 * STEP)
        found.append(slope)
    return found


@pytest.mark.parametrize(
    ("formula", "shapes", "shape"),
    [
        (kernels.linear, [(3, 4), (4, 5)], (3, 5)),
        (lambda x, w, g: kernels.rms_norm(x, w, 0.1, g), [(3, 6), (6,)], (3, 6)),
        (lambda x, w, g: kernels.layer_norm(x, w, 0.1, g), [(3, 6), (6,)], (3, 6)),
        (kernels.swiglu, [(3, 4), (3, 4)], (3, 4)),
        (
            lambda q, k, v, g: kernels.attention(q, k, v, np.tril(np.ones((3, 3), bool)), g),
            [(2, 3, 4, 2), (2, 3, 2, 2), (2, 3, 2, 2)],
            (2, 3, 4, 2),
        ),
    ],
    ids=["linear", "rms norm", "layer norm", "swiglu", "attention"],
)
def test_gradients_are_those_of_finite_differences(formula, shapes, shape):
    arrays, g = [RNG.standard_normal(each) for each in shapes], RNG.standard_normal(shape)
    for found, expected in zip(formula(*arrays, g)[1:], slopes(lambda *each: formula(*each, g)[0], arrays, g), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_rotation_keeps_lengths_and_is_undone_by_the_opposite_angle():
    heads = RNG.standard_normal((2, 5, 3, 8))
    angles = np.tile(np.outer(np.arange(5), RNG.random(4)), 2)
    cosine, sine = np.cos(angles), np.sin(angles)
    turned = kernels.rotated(heads, cosine, sine)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(heads, axis=-1))
    np.testing.assert_allclose(kernels.rotated(turned, cosine, -sine), heads, atol=1e-12)
    assert np.abs(turned - heads).max() > 0.1
