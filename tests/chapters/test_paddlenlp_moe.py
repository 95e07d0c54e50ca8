"""What is compared of PaddleNLP's mixture-of-experts classes: routing, dense computation and workarounds."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.moe import moe_layer, paddle_moe, paddlenlp_moe
from xpulab.checks.table import Table


@pytest.fixture
def x():
    return moe_layer.clear_tokens(8, paddle_moe.gate_weight(), 0)


def outcomes(rows):
    return {row.case: row.outcome for row in rows.record("", 0.0).rows}


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


def test_a_block_that_computes_as_its_experts_do_passes(x):
    rows, block = Table("moe.x"), paddlenlp_moe.blocks()["Mixtral"]()
    paddlenlp_moe.rows_of_block(rows, "x", block, x, 1e-4)
    found = outcomes(rows)
    assert found == {
        "x runs": "failed",  # a known issue under its own name
        "x, training, with a workaround": "passed",
        "x, evaluation, with a workaround": "passed",
    }


def test_a_block_whose_experts_are_exchanged_fails(x):
    rows, block = Table("moe.x"), paddlenlp_moe.blocks()["Mixtral"]()
    real = block.forward
    block.forward = lambda hidden: real(-hidden)
    paddlenlp_moe.rows_of_block(rows, "x", block, x, 1e-4)
    assert outcomes(rows)["x, training, with a workaround"] == "failed"


def test_one_process_computes_the_weighted_sum(x):
    output, _, of_experts = paddlenlp_moe.on_one_process(x)
    weights = paddlenlp_moe.routing_of(x).weights
    np.testing.assert_allclose(output, paddlenlp_moe.layer_value(x, weights), atol=1e-4)
    assert of_experts.shape == (paddle_moe.EXPERTS, paddle_moe.HIDDEN, paddle_moe.HIDDEN)


@pytest.mark.integration
def test_the_parallel_layer_is_not_tried_without_an_all_to_all(x):
    rows = Table("moe.x")
    paddlenlp_moe.rows_of_parallel_layer(rows, "cpu", x, 1e-4)
    record = rows.record("", 0.0)
    assert record.outcome == "skipped" and "gloo has no all_to_all" in record.reason
