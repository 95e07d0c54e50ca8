"""The gradients of indices: workarounds have that of finite differences."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.shared import index_gradients
from xpulab.chapters.shared.index_gradients import differences, gradients


@pytest.mark.parametrize("name", index_gradients.WORKAROUNDS)
def test_workarounds_have_the_right_gradient(name):
    case = index_gradients.WORKAROUNDS[name]
    found, expected = gradients(case), differences(case)
    assert found.keys() == expected.keys()
    assert all(np.allclose(found[what], expected[what]) for what in expected)


@pytest.mark.parametrize("name", index_gradients.WORKAROUNDS)
def test_a_workaround_computes_what_the_plain_form_does(name):
    plain_forms = index_gradients.ONE_VALUE | index_gradients.AT_NEGATIVE | index_gradients.THROUGH_VIEWS
    plain, other = plain_forms[name], index_gradients.WORKAROUNDS[name]
    assert plain.value == other.value
    given = index_gradients.arguments(plain)
    results = []
    for case in (plain, other):
        tensors = {key: paddle.to_tensor(array) for key, array in given.items()}
        results.append(case.function(tensors["x"], tensors.get("value")).numpy())
    assert np.array_equal(*results)
