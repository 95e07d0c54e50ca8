"""The gradients of indices: finite differences find what a gradient must be, and workarounds have it."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.shared import index_gradients
from xpulab.chapters.shared.index_gradients import GradientCase, differences, gradients


def test_finite_differences_of_a_product_by_two_are_twice_the_weights():
    found = differences(GradientCase(lambda x, value: 2 * x + value, (6,)))
    weights = np.arange(1.0, 25.0).reshape(4, 6)
    assert np.array_equal(found["x"], 2 * weights)
    assert np.array_equal(found["value"], weights.sum(0))


def test_a_value_without_axes_has_a_gradient_without_axes():
    found = differences(GradientCase(lambda x, value: x + value, ()))
    assert found["value"].shape == () and found["value"] == 300


def test_an_argument_that_is_not_used_has_gradient_zero():
    found = gradients(GradientCase(lambda x, value: x, (2,)))
    assert np.array_equal(found["value"], np.zeros(2))


def test_a_wrong_gradient_differs():
    case = GradientCase(lambda x, _: x.detach() + 0 * x)
    assert not np.allclose(gradients(case)["x"], differences(case)["x"])


@pytest.mark.parametrize("name", [*index_gradients.READ, *index_gradients.WORKAROUNDS])
def test_reading_and_workarounds_have_the_right_gradient(name):
    case = (index_gradients.READ | index_gradients.WORKAROUNDS)[name]
    found, expected = gradients(case), differences(case)
    assert found.keys() == expected.keys()
    assert all(np.allclose(found[what], expected[what]) for what in expected)


@pytest.mark.parametrize("name", index_gradients.WORKAROUNDS)
def test_a_workaround_computes_what_the_plain_form_does(name):
    plain, other = ((index_gradients.ONE_VALUE | index_gradients.THROUGH_VIEWS)[name], index_gradients.WORKAROUNDS[name])
    assert plain.value == other.value
    given = index_gradients.arguments(plain)
    results = []
    for case in (plain, other):
        tensors = {key: paddle.to_tensor(array) for key, array in given.items()}
        results.append(case.function(tensors["x"], tensors.get("value")).numpy())
    assert np.array_equal(*results)
