"""Composite operators: nothing stays switched on afterwards."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

from xpulab.chapters.tensors import composite

SHAPE = [4, 6]


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
