"""The parts of chapter 11 that it imports: experts, tokens, weights, and the all-to-all on ranks."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks
from xpulab.chapters.moe import moe_layer
from xpulab.reference import moe


@pytest.fixture
def weights():
    return moe_layer.random_weights(6, 5, 4, 0)


def layer_with(weights, first=0, count=4):
    gate = paddle.nn.Linear(6, 4, bias_attr=False)
    experts = [moe_layer.Expert(6, 5) for _ in range(count)]
    moe_layer.set_weights(gate, experts, weights, first)
    return gate, experts


def test_an_expert_is_that_of_the_reference_implementation(weights):
    _, experts = layer_with(weights)
    x = np.random.default_rng(1).standard_normal((3, 6)).astype("float32")
    one = moe.Weights(np.zeros((6, 1)), weights.up[2:3], weights.down[2:3])
    expected, _ = moe.forward(x.astype("float64"), one, 1, 3)  # a gate with one expert has probability 1
    np.testing.assert_allclose(experts[2](paddle.to_tensor(x)).numpy(), expected, atol=1e-5)


def test_an_expert_takes_no_tokens_and_gets_a_gradient_of_zero(weights):
    _, experts = layer_with(weights)
    nothing = paddle.to_tensor(np.zeros((0, 6), "float32"), stop_gradient=False)
    output = experts[0](nothing)
    output.sum().backward()
    assert list(output.shape) == [0, 6]
    assert not experts[0].up.weight.grad.numpy().any()


def test_tokens_have_logits_that_are_apart(weights):
    tokens = moe_layer.clear_tokens(50, weights.gate, 0)
    logits = np.sort(tokens.astype("float64") @ weights.gate, axis=1)
    assert tokens.shape == (50, 6) and np.diff(logits, axis=1).min() > moe_layer.GAP


def test_no_tokens_have_a_shape(weights):
    assert moe_layer.clear_tokens(0, weights.gate, 0).shape == (0, 6)


def test_the_seed_decides_what_is_drawn(weights):
    again, other = moe_layer.random_weights(6, 5, 4, 0), moe_layer.random_weights(6, 5, 4, 1)
    assert np.array_equal(weights.up, again.up) and not np.array_equal(weights.up, other.up)


def test_a_rank_gets_the_weights_of_its_experts(weights):
    _, experts = layer_with(weights, first=2, count=2)
    assert [np.array_equal(experts[i].down.weight.numpy(), weights.down[2 + i]) for i in range(2)] == [True, True]


def test_a_parameter_without_gradient_is_named(weights):
    gate, experts = layer_with(weights)
    with pytest.raises(ValueError, match=f"no gradient reached {gate.weight.name}"):
        moe_layer.gradients_of(gate, experts)


def test_experts_of_ranks_are_joined_in_their_order(weights):
    halves = [moe.Weights(weights.gate, weights.up[a:b], weights.down[a:b]) for a, b in ((0, 2), (2, 4))]
    joined = moe_layer.joined(halves)
    assert np.array_equal(joined.up, weights.up) and np.array_equal(joined.down, weights.down)
    assert moe_layer.doubled(joined).gate.dtype == np.float64


def test_four_kinds_of_tokens_have_a_common_part():
    x, y = moe_layer.four_kinds(400, 8, 0)
    assert x.shape == y.shape == [400, 8] and not x.stop_gradient
    assert float(x.mean()) > 0.5


def there_and_back(splits):
    """On a rank: what arrives, and the gradient that returns when it is the rows that arrived."""
    dist.init_parallel_env()
    rank = dist.get_rank()
    rows = np.full((splits[rank].sum(), 2), rank, "float32") + np.arange(splits[rank].sum())[:, None] / 16
    sent = paddle.to_tensor(rows, stop_gradient=False)
    arrived = moe_layer.AllToAll.apply(sent, splits[rank].tolist(), splits[:, rank].tolist())
    (arrived * arrived.detach()).sum().backward()
    return rows, arrived.numpy(), sent.grad.numpy()


@pytest.mark.integration
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_rows_arrive_and_their_gradients_return(device):
    splits = np.array([[0, 2, 1], [0, 0, 0], [3, 0, 1]])
    results = ranks.run(there_and_back, 3, splits, device=device)
    starts = splits.cumsum(axis=1) - splits
    for receiver, (rows, arrived, gradient) in enumerate(results):
        parts = [
            results[sender][0][starts[sender, receiver] : starts[sender, receiver] + splits[sender, receiver]]
            for sender in range(3)
        ]
        assert np.array_equal(arrived, np.concatenate(parts))
        assert np.array_equal(gradient, rows)
