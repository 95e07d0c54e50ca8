"""The table of operators has the derivatives that finite differences show, and its bound accepts what rounding causes."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.reference import bounds, operators
from xpulab.reference.operators import AXES, FUNCTIONS, PAIRS

RNG = np.random.default_rng(0)
STEP = 1e-6


def slope_of(function, array):
    """The gradient of function(array) by central differences in every element."""
    slope = np.zeros_like(array)
    for place in np.ndindex(array.shape):
        step = np.zeros_like(array)
        step[place] = STEP
        slope[place] = (function(array + step) - function(array - step)) / (2 * STEP)
    return slope


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    x = RNG.uniform(0.1 if FUNCTIONS[name].is_of_positives else -2, 2, 9)
    np.testing.assert_allclose(FUNCTIONS[name].slope(x), slope_of(lambda each: FUNCTIONS[name].value(each).sum(), x), atol=1e-7)


@pytest.mark.parametrize("name", [name for name, pair in PAIRS.items() if pair.slopes])
def test_pairs(name):
    x, y = RNG.uniform(0.5, 2, (2, 9))
    of_x, of_y = PAIRS[name].slopes(x, y)
    np.testing.assert_allclose(of_x, slope_of(lambda each: np.sum(PAIRS[name].value(each, y)), x), atol=1e-7)
    np.testing.assert_allclose(of_y, slope_of(lambda each: np.sum(PAIRS[name].value(x, each)), y), atol=1e-7)


@pytest.mark.parametrize("name", AXES)
@pytest.mark.parametrize("axis", [0, -1])
def test_along_axes(name, axis):
    x = RNG.standard_normal((3, 4))
    weight = RNG.standard_normal(AXES[name].value(x, axis).shape)
    expected = slope_of(lambda each: (AXES[name].value(each, axis) * weight).sum(), x)
    np.testing.assert_allclose(AXES[name].slope(x, axis, weight), expected, atol=1e-7)


@pytest.mark.parametrize("is_centered", [True, False])
def test_norms_over_two_axes(is_centered):
    x, inner, axes = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((2, 3, 4)), (-2, -1)
    normal, spread, _ = operators.normalized(x, axes, 0.1, is_centered)
    found = operators.slope_of_normalized(normal, spread, inner, axes, is_centered)
    expected = slope_of(lambda each: (operators.normalized(each, axes, 0.1, is_centered)[0] * inner).sum(), x)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_rotation_keeps_lengths_and_is_undone_by_the_opposite_angle():
    heads, angles = RNG.standard_normal((2, 5, 3, 8)), np.outer(np.arange(5), RNG.random(4))
    whole = np.tile(angles, 2)
    cosine, sine = np.cos(whole)[:, None], np.sin(whole)[:, None]
    turned = operators.rotated(heads, cosine, sine)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=-1), np.linalg.norm(heads, axis=-1))
    np.testing.assert_allclose(operators.rotated(turned, cosine, -sine), heads, atol=1e-12)


# ------------------------------------------------------------------------------------------------------------- the bound

LEFT, RIGHT = np.random.default_rng(0).standard_normal((2, 64, 64))
EXACT, SCALE = LEFT @ RIGHT, np.abs(LEFT) @ np.abs(RIGHT)


def rounded(array, bits):
    """The array with this many bits in its fraction."""
    fraction, exponent = np.frexp(array)
    return np.ldexp(np.round(fraction * 2.0 ** (bits + 1)) / 2.0 ** (bits + 1), exponent)


def error(left, right, dtype, kept=None):
    """The largest error of a product of these, in units of the bound."""
    return (np.abs(left @ right - EXACT) / bounds.bound(EXACT, SCALE, dtype, kept)).max()


def test_rounding_is_within_the_bound_and_tf32_only_where_products_keep_ten_bits():
    tf32 = rounded(LEFT, 10), rounded(RIGHT, 10)
    assert error(rounded(LEFT, 23), rounded(RIGHT, 23), "float32") < 1
    assert error(*tf32, "float32") > 1 > error(*tf32, "float32", kept=10)


@pytest.mark.parametrize(("dtype", "kept"), [("float32", None), ("float32", 10), ("float64", None), ("bfloat16", None)])
def test_factors_of_ten_bits_less_are_beyond_the_bound(dtype, kept):
    assert error(bounds.fewer_bits(LEFT, dtype, kept), bounds.fewer_bits(RIGHT, dtype, kept), dtype, kept) > 1


def test_long_sums_get_wider_bounds_and_integers_none():
    assert bounds.long_sum(16) == 1 < bounds.long_sum(512) < 10
    assert bounds.share_of_largest("float32", length=1024) < bounds.share_of_largest("float32", length=4096)
    assert bounds.bound([3, 4], 1.0, "int64").tolist() == [0.25, 0.25]
