"""A recording names every operator of a step: those that Python calls with their arguments, the others by name."""

from __future__ import annotations

from functools import partial

import paddle
import paddle.nn.functional as F
import pytest

from xpulab.operators import recorder
from xpulab.operators.calls import Amp, format_call


def step():
    """Forward, backward and an update of a small model."""
    paddle.seed(0)
    layer = paddle.nn.Linear(4, 3)
    optimizer = paddle.optimizer.AdamW(1e-3, parameters=layer.parameters())

    def run():
        for _ in range(2):
            loss = -F.log_softmax(layer(paddle.ones([2, 4])) * 2.0)[:, 0].mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    run()
    return run


def names(recording):
    return {call.operator for call in recording}


def test_a_call_has_shapes_types_attributes_results_and_a_count():
    (call,) = [each for each in recorder.record(step()) if each.operator == "log_softmax"]
    (given,) = call.tensors()
    assert (given.shape, given.dtype, given.wants_gradient) == ((2, 3), "float32", True)
    assert (call.arguments[1], call.count, call.results[0].shape) == (-1, 2, (2, 3))
    assert call.caller.startswith(__file__)
    assert format_call(call) == "log_softmax [2, 3] float32"


def test_indices_keep_their_values_and_real_numbers_their_range():
    look_up = partial(F.embedding, paddle.to_tensor([2, 0, 2]), paddle.to_tensor([[1.0], [-2.0], [5.0]]))
    (call,) = recorder.record(look_up)
    ids, weight = call.tensors()
    assert ids.values.tolist() == [2, 0, 2]
    assert (weight.low, weight.high) == (-2.0, 5.0)


def test_mixed_precision_is_part_of_a_call():
    with paddle.amp.auto_cast(level="O1", dtype="bfloat16", enable=True):
        amp = recorder.record(lambda: paddle.tanh(paddle.ones([2])))[-1].amp
    assert amp in (Amp("O1", "bfloat16"), Amp())  # a CPU without bfloat16 leaves mixed precision off


def test_a_call_that_raises_is_not_part_of_the_step():
    rows = paddle.ones([2, 3])  # Python asks for rows[2], too, and takes the error for the end
    calls = recorder.record(lambda: list(rows))
    assert [call.arguments[1] for call in calls if call.name == "_getitem_dygraph"] in ([0, 1], [(0,), (1,)])


def test_the_operators_are_put_back_also_after_an_error():
    before = paddle._C_ops.matmul
    with pytest.raises(ZeroDivisionError):
        recorder.record(lambda: 1 / 0)
    assert paddle._C_ops.matmul is before
