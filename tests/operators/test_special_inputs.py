"""What a batch without elements gives follows from two batches; chapter 17 compares Paddle with it."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

from xpulab.operators import empty, recorder


def calls(batch):
    """The operators of a small model on a batch."""
    paddle.seed(0)
    layer = paddle.nn.Linear(4, 3)
    x = paddle.ones([batch, 5, 4])
    x.stop_gradient = False
    with recorder.recorded() as recording:
        F.softmax(layer(x)).reshape([batch, 15]).mean(axis=0)
    return recording.recording().calls


@pytest.fixture
def cases():
    found = empty.empty_cases(calls(empty.SMALL), calls(empty.LARGE))
    return {case.call.operator: case for case in found if not case.for_one_input}


def test_the_sizes_of_a_batch_of_none_follow_from_two_batches(cases):
    assert cases["linear"].shapes == [[0, 5, 3]]
    assert cases["linear"].gradients == [[0, 5, 4], [4, 3], [3]]
    assert cases["reshape"].call.arguments[1] == [0, 15]
    assert cases["mean"].shapes == [[15]]


def test_backward_for_one_of_several_inputs_is_a_case_of_its_own():
    found = empty.empty_cases(calls(empty.SMALL), calls(empty.LARGE))
    rows = empty.by_operator(found)
    assert [found[place].gradients for place in rows["linear, gradient of one input"]] == [[[0, 5, 4]], [[4, 3]], [[3]]]


def test_two_different_steps_are_refused():
    with recorder.recorded() as recording:
        paddle.tanh(paddle.ones([2]))
    with pytest.raises(ValueError, match="shorter"):
        empty.empty_cases(calls(2), recording.recording().calls)
