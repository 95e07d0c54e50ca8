"""Why sharded accumulation sets gradients to zero in place."""

from __future__ import annotations

import paddle
import pytest

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def cpu():
    paddle.set_device("cpu")


def test_after_clear_gradient_the_next_gradient_is_not_in_its_buffer():
    buffer, weight = paddle.zeros([32]), paddle.create_parameter([16], "float32")
    weight.sum().backward()
    weight._copy_gradient_from(buffer._slice(8, 24))

    def is_in_buffer():
        weight.sum().backward()
        return weight.grad._is_shared_buffer_with(buffer)

    assert is_in_buffer()
    with paddle.no_grad():
        weight.grad.zero_()
    assert is_in_buffer()
    weight.clear_gradient(True)
    assert not is_in_buffer()
