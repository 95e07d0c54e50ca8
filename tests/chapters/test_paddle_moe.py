"""What is compared of Paddle's mixture-of-experts layer: definitions by hand, and refusals of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.chapters.moe import paddle_moe
from xpulab.checks.table import Table
from xpulab.records.refusals import refusal


def test_every_operator_has_a_wrong_value_of_the_same_shape():
    for operator in paddle_moe.operators().values():
        assert operator.expected.shape == operator.wrong.shape and not np.array_equal(operator.expected, operator.wrong)


def test_the_cpu_has_no_kernel_for_any_of_the_operators():
    for name, operator in paddle_moe.operators().items():
        assert refusal("cpu", name), name
        with pytest.raises((RuntimeError, NotImplementedError)):
            operator.call()


def test_an_error_that_no_entry_declares_is_red_and_prints_the_entry():
    (_, operator), *_ = paddle_moe.operators().items()
    rows = Table("moe.x")
    paddle_moe.row_of_operator(rows, "another_operator", operator, "cpu")
    record = rows.record("", 0.0)
    assert record.outcome == "failed" and "call: another_operator" in str(record)


def test_an_error_is_named():
    assert paddle_moe.error_of(lambda: 1 / 0) == "ZeroDivisionError: division by zero"
    assert paddle_moe.error_of(lambda: 1) == "none"


def test_the_layer_with_a_switch_gate_weights_by_the_probability():
    x = np.eye(paddle_moe.HIDDEN)[:3]
    logits = x @ paddle_moe.gate_weight().astype("float64")
    best = logits.argmax(axis=1)
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    maps = [each.weight.numpy().astype("float64") for each in paddle_moe.linear_experts()]
    expected = [chance[i, e] * (x[i] @ maps[e]) for i, e in enumerate(best)]
    np.testing.assert_allclose(paddle_moe.logits_layer(x, "switch"), expected)
