"""What is compared of Paddle's operators for experts: the refusals of the CPU."""

from __future__ import annotations

import pytest

from xpulab.chapters.moe import paddle_operators
from xpulab.checks.table import Table
from xpulab.records.refusals import refusal


def test_the_cpu_has_no_kernel_for_any_of_the_operators():
    for name, operator in paddle_operators.operators().items():
        assert refusal("cpu", name), name
        with pytest.raises((RuntimeError, NotImplementedError)):
            operator.call()


def test_an_error_that_no_entry_declares_is_red_and_prints_the_entry():
    (_, operator), *_ = paddle_operators.operators().items()
    rows = Table("moe.x")
    paddle_operators.row_of_operator(rows, "another_operator", operator, "cpu")
    record = rows.record("", 0.0)
    assert record.outcome == "failed" and "call: another_operator" in str(record)
