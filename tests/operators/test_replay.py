"""An operator that is called again is compared with numpy: what is right passes, a wrong value or gradient does not."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest
from paddle import _C_ops

from xpulab.operators import recorder, table
from xpulab.operators.reference import CPU, NUMPY
from xpulab.operators.replay import replay


def tensor(*shape, low=-1.0):
    """A tensor of random numbers that wants a gradient."""
    paddle.seed(1)
    made = paddle.uniform(shape, min=low, max=1.5)
    made.stop_gradient = False
    return made


def recorded(function):
    """The operators that function() calls."""
    return recorder.record(function)


ROWS, COLUMNS = paddle.to_tensor([2, 0, 2]), paddle.to_tensor([[0, 1], [2, 2]])
OPERATORS = {
    "linear": lambda: F.linear(tensor(2, 3, 4), tensor(4, 5), tensor(5)),
    "matmul": lambda: paddle.matmul(tensor(2, 3, 4), tensor(2, 5, 4), transpose_y=True),
    "arithmetic": lambda: (2.0 - tensor(3)) * tensor(2, 3) / (tensor(3, low=0.5) + 1.0) ** 2.0,
    "comparison": lambda: paddle.where(tensor(3) > 0.5, tensor(3), -tensor(3)),
    "softmax": lambda: F.softmax(tensor(2, 3, 4), axis=1),
    "log_softmax": lambda: F.log_softmax(tensor(2, 3)),
    "layer_norm": lambda: F.layer_norm(tensor(4, 6), [6], tensor(6), tensor(6)),
    "activations": lambda: [
        f(tensor(9)) for f in (F.gelu, F.silu, F.sigmoid, paddle.tanh, paddle.exp, paddle.rsqrt, paddle.abs)
    ],
    "roots": lambda: [f(tensor(9, low=0.1)) for f in (paddle.sqrt, paddle.rsqrt, paddle.log)],
    "gelu by tanh": lambda: F.gelu(tensor(9), approximate=True),
    "swiglu": lambda: paddle._C_ops.swiglu(tensor(2, 8), None),
    "cross entropy": lambda: F.cross_entropy(tensor(3, 5), paddle.to_tensor([1, -100, 4]), ignore_index=-100),
    "reductions": lambda: [f(tensor(3, 4), axis=1) for f in (paddle.sum, paddle.mean, paddle.max, paddle.logsumexp)],
    "moves": lambda: tensor(2, 3, 4).transpose([2, 0, 1]).reshape([4, 6]).unsqueeze(1).tile([1, 2, 1]),
    "parts": lambda: [tensor(4, 6).split([1, 5], axis=1), tensor(4, 6)[1:, ::2], paddle.stack([tensor(2), tensor(2)])],
    "rows": lambda: [f(tensor(3, 4), ROWS) for f in (paddle.gather, lambda x, i: F.embedding(i, x))],
    "elements": lambda: paddle.take_along_axis(tensor(2, 4), COLUMNS % 2, 1),
    "clip": lambda: paddle.clip(tensor(9), 0.1, 0.5),
    "made": lambda: [paddle.full([2, 3], 1e-6), paddle.arange(7), paddle.tril(paddle.ones([3, 3]))],
    "types": lambda: [tensor(3).astype("float64"), tensor(3).astype("int32"), -tensor(3) > 0],
}


@pytest.mark.parametrize("function", OPERATORS.values(), ids=OPERATORS)
def test_paddle_computes_what_numpy_computes(function):
    results = [replay(call) for call in recorded(function) if call.operator not in ("uniform", "seed")]
    assert results
    assert [(each.call.name, each.outcome, each.error, each.reference) for each in results if each.outcome != "right"] == []
    assert {each.reference for each in results} == {NUMPY}
    assert min(each.value_control for each in results) > 1
    assert min(each.gradient_control or 2 for each in results) > 1


def test_an_operator_without_a_formula_is_compared_with_the_cpu_and_says_so():
    (call,) = [each for each in recorded(lambda: paddle.atan(tensor(5))) if each.operator == "atan"]
    assert (replay(call).reference, replay(call).outcome) == (CPU, "right")


@pytest.fixture
def softmax():
    """The recorded call of a softmax; and its operator is put back afterwards."""
    real = _C_ops.softmax
    yield next(call for call in recorded(lambda: F.softmax(tensor(2, 3, 4))) if call.operator == "softmax")
    _C_ops.softmax = real


def missing(*_given, **_named):
    raise RuntimeError("stack\n(NotFound) The kernel is not registered.")


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        (lambda real: lambda x, axis=-1, **named: real(x, 1, **named), None),
        (lambda real: lambda x, axis=-1, **named: real(x, axis, **named)[:1], "[[1, 3, 4]], expected [[2, 3, 4]]"),
        (lambda real: missing, "RuntimeError: (NotFound) The kernel is not registered."),
    ],
    ids=["value", "shape", "raises"],
)
def test_a_wrong_value_or_shape_and_an_error_are_detected(softmax, broken, error):
    _C_ops.softmax = broken(_C_ops.softmax)
    found = replay(softmax)
    assert found.outcome == "wrong"
    assert error in found.error if error else found.value > 1


def test_random_results_are_not_compared():
    (call,) = recorded(lambda: paddle.uniform([3]))
    assert (replay(call).outcome, replay(call).reason) == ("not compared", "its results are random or undefined")


def test_an_argument_that_cannot_be_made_again_is_a_reason():
    (call,) = recorded(lambda: paddle.tanh(tensor(2)))[-1:]
    from dataclasses import replace

    from xpulab.operators.calls import Unknown

    found = replay(replace(call, arguments=(Unknown("program"),)))
    assert (found.outcome, found.reason) == ("not compared", "an argument is a program")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adamw_computes_what_its_paper_says(dtype):
    layer = paddle.nn.Linear(8, 8)
    optimizer = paddle.optimizer.AdamW(learning_rate=1e-3, parameters=layer.parameters(), weight_decay=0.1)

    def step():
        layer(paddle.ones([2, 8])).sum().backward()
        optimizer.step()

    step()
    calls = [call for call in recorder.record(step) if call.operator == "adamw"]
    found = [each for results in table.results(calls, [dtype], 0, "cpu").values() for each in results]
    assert {(each.outcome, each.reference) for each in found} == {("right", NUMPY)}
