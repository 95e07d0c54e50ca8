"""Composite operators: what a program contains, whole and decomposed, and that nothing stays switched on afterwards."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from xpulab.chapters.tensors import composite

SHAPE = [4, 6]
X = np.random.default_rng(0).normal(size=SHAPE).astype("float32")


def test_a_program_has_the_operator_and_a_decomposed_one_its_parts():
    assert composite.operators(F.silu, SHAPE, decomposed=False) == ["data", "silu"]
    assert composite.operators(F.silu, SHAPE, decomposed=True) == ["data", "sigmoid", "multiply"]


def test_a_kept_operator_stays_this_time_only():
    assert composite.operators(F.silu, SHAPE, decomposed=True, kept=["silu"]) == ["data", "silu"]
    assert "silu" not in composite.operators(F.silu, SHAPE, decomposed=True)


def test_tensors_are_computed_as_before_afterwards():
    device = paddle.get_device()
    composite.operators(F.silu, SHAPE, decomposed=True)
    assert paddle.in_dynamic_mode() and paddle.get_device() == device
    assert not paddle.base.core._is_fwd_prim_enabled() and not paddle.base.core._is_bwd_prim_enabled()


def test_an_error_inside_leaves_nothing_switched_on():
    def refuse(x):
        raise ValueError

    with pytest.raises(ValueError):
        composite.operators(refuse, SHAPE, decomposed=True)
    assert paddle.in_dynamic_mode()
    assert not paddle.base.core._is_fwd_prim_enabled()


@pytest.mark.parametrize("decomposed", [False, True])
def test_value_and_gradient_are_those_of_the_formula(decomposed):
    sigmoid = 1 / (1 + np.exp(-X.astype("float64")))
    weights = np.cos(np.arange(24.0)).reshape(SHAPE)
    value, gradient = composite.in_a_program(F.silu, X, decomposed)
    np.testing.assert_allclose(value, X * sigmoid, atol=1e-6)
    np.testing.assert_allclose(gradient, weights * sigmoid * (1 + X * (1 - sigmoid)), atol=1e-6)


def test_eager_mode_gives_the_same():
    for ours, theirs in zip(composite.eager(F.silu, X), composite.in_a_program(F.silu, X, False), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
