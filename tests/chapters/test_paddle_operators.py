"""What is compared of Paddle's operators for experts: the refusals of the CPU."""

from __future__ import annotations

import pytest

from xpulab.chapters.moe import paddle_operators
from xpulab.records.refusals import refusal


def test_the_cpu_has_no_kernel_for_any_of_the_operators():
    for name, operator in paddle_operators.operators().items():
        assert refusal("cpu", name), name
        with pytest.raises((RuntimeError, NotImplementedError)):
            operator.call()
