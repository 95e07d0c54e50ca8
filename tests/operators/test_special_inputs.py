"""Operators without elements, and with indices that occur many times."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

from xpulab.operators import empty, recorder, repeated


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


def test_paddle_gives_the_shapes_of_a_batch_of_none(cases):
    for name, case in cases.items():
        assert (name, empty.outcome(case)) == (name, case.expected)
        assert case.wrong != case.expected


def test_backward_for_one_of_several_inputs_is_a_case_of_its_own():
    found = empty.empty_cases(calls(empty.SMALL), calls(empty.LARGE))
    rows = empty.by_operator(found)
    assert [found[place].gradients for place in rows["linear, gradient of one input"]] == [[[0, 5, 4]], [[4, 3]], [[3]]]


def test_an_operator_that_raises_on_an_empty_tensor_is_reported(cases, monkeypatch):
    def refuse(*_given):
        raise RuntimeError("no elements")

    monkeypatch.setattr(paddle._C_ops, "linear", refuse)
    assert empty.outcome(cases["linear"]) == "RuntimeError: no elements"


def test_two_different_steps_are_refused():
    with recorder.recorded() as recording:
        paddle.tanh(paddle.ones([2]))
    with pytest.raises(ValueError, match="shorter"):
        empty.empty_cases(calls(2), recording.recording().calls)


@pytest.mark.parametrize("name", repeated.NAMES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_repeated_indices_add_up(name, dtype):
    for what, each in repeated.compared(name, dtype, 0).items():
        assert np.array_equal(each.found, each.expected), what
        assert not np.array_equal(each.once, each.expected), what


def test_a_gradient_that_counts_an_index_once_is_the_control(monkeypatch):
    real = paddle._C_ops.embedding

    def counted_once(ids, weight, *others):
        result = real(ids, weight, *others)
        last = np.zeros(ids.shape[0], "float32")
        last[list({int(row): place for place, row in enumerate(ids.numpy())}.values())] = 1
        return result.detach() + (result - result.detach()) * paddle.to_tensor(last).unsqueeze(-1)

    monkeypatch.setattr(paddle._C_ops, "embedding", counted_once)
    each = repeated.compared("embedding", "float32", 0)["gradient"]
    assert np.array_equal(each.found, each.once)
