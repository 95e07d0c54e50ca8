"""Workarounds for PaddleNLP's mixture-of-experts classes act inside their block only."""

from __future__ import annotations

import paddle

from xpulab.chapters.moe import paddlenlp_moe


def test_cumsum_keeps_the_type_inside_of_the_workaround_only():
    whole = paddle.ones([3], dtype="int32")
    with paddlenlp_moe.cumsum_of_one_type():
        assert paddle.cumsum(whole, axis=0).dtype == paddle.int32
    assert paddle.cumsum(whole, axis=0).dtype == paddle.int64


def test_where_gives_columns_inside_of_the_workaround_only():
    condition = paddle.to_tensor([[True, False], [True, True]])
    with paddlenlp_moe.where_of_columns():
        assert paddle.where(condition)[0].shape == [3, 1]
        assert paddle.where(condition, condition, condition).shape == [2, 2]
    assert paddle.where(condition)[0].shape == [3]


def test_topk_is_in_order_inside_of_the_workaround_only(monkeypatch):
    asked = []
    real = paddle.topk
    monkeypatch.setattr(paddle, "topk", lambda *given: asked.append(given[4]) or real(*given))
    with paddlenlp_moe.topk_in_order():
        values, _ = paddle.topk(paddle.to_tensor([1.0, 3.0, 2.0]), 2, axis=-1, sorted=False)
    paddle.topk(paddle.to_tensor([1.0]), 1, -1, True, False)
    assert (values.tolist(), asked) == ([3.0, 2.0], [True, False])
