"""Why checks are skipped on a CPU or on simulated cards: what Paddle does there.

A release that can do more fails here, and then the skip must go.
"""

from __future__ import annotations

import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks
from xpulab.chapters.memory import fused_buffers

SECONDS = 60
"""Limit of a run of two ranks on busy cores."""


def message_of(call):
    """The error of a call, or an empty text."""
    try:
        call()
    except Exception as error:  # any of Paddle's or of Python's types says no
        return f"{type(error).__name__}: {error}"
    return ""


def refused_by_gloo():
    """On a rank: by call the error."""
    dist.init_parallel_env()
    one, parts = paddle.ones([2]), [paddle.ones([2]), paddle.ones([2])]
    return {
        "reduce_scatter": message_of(lambda: dist.reduce_scatter(paddle.zeros([2]), parts)),
        "all_to_all": message_of(lambda: dist.alltoall([], parts)),
        "all_to_all of one tensor": message_of(lambda: dist.alltoall_single(paddle.zeros([2]), one)),
        "average": message_of(lambda: dist.stream.all_reduce(one, op=dist.ReduceOp.AVG)),
        "sum": message_of(lambda: dist.all_reduce(one)),
    }


def both_send_first(elements):
    """On a rank: send to the other one, then receive from it, as neighbouring stages of 1F1B and VPP do."""
    dist.init_parallel_env()
    other = 1 - dist.get_rank()
    dist.send(paddle.ones([elements]), other)
    received = paddle.zeros([elements])
    dist.recv(received, other)
    return float(received.sum())


@pytest.fixture(scope="module")
def of_gloo():
    return ranks.run(refused_by_gloo, 2, device="cpu", time_limit=SECONDS)


@pytest.mark.parametrize("name", ["reduce_scatter", "all_to_all", "all_to_all of one tensor", "average"])
def test_gloo_refuses_it_on_every_rank(of_gloo, name):
    assert all(of_rank[name] for of_rank in of_gloo)


def test_gloo_adds(of_gloo):
    assert [of_rank["sum"] for of_rank in of_gloo] == ["", ""]


def test_two_ranks_that_send_to_each_other_first_never_end_on_gloo():
    with pytest.raises(ranks.RanksFailed):
        ranks.run(both_send_first, 2, 1 << 20, device="cpu", time_limit=8)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_cpu_has_no_products_of_half_types(dtype):
    x = paddle.ones([4, 4], "float32").astype(dtype)
    assert "matmul" in message_of(lambda: x @ x)


def test_paddle_switches_loss_scaling_off_on_the_cpu():
    with pytest.warns(UserWarning):
        assert not paddle.amp.GradScaler(init_loss_scaling=8.0).is_enable()


def test_a_wheel_for_the_cpu_has_no_pinned_memory():
    assert message_of(lambda: paddle.ones([2]).pin_memory())


def fused_on_simulated_cards(entry):
    """On a rank: whether fused gradients are those that are sent one by one; entry: whether Paddle's table knows the cards."""
    if entry:
        fused_buffers.helper.alignment["sim"] = fused_buffers.ALIGNMENT
    alone, fused = fused_buffers.steps_of([("one by one", 1), ("fused", 1)], 1, seed=0)
    return all((a == b).all() for a, b in zip(alone.gradients[0], fused.gradients[0], strict=True))


def test_paddle_has_no_fused_buffers_on_simulated_cards():
    with pytest.raises(ranks.RanksFailed, match="only support"):
        ranks.run(fused_on_simulated_cards, 2, False, device="sim", time_limit=SECONDS)


def test_with_an_entry_for_simulated_cards_gradients_are_lost():
    assert not any(ranks.run(fused_on_simulated_cards, 2, True, device="sim", time_limit=SECONDS))


def test_the_cpu_has_no_bfloat16_for_a_causal_mask():
    ones = [paddle.ones([2, 2], dtype) for dtype in ("float32", "bfloat16")]
    assert [bool(message_of(lambda each=each: paddle.tril(each))) for each in ones] == [False, True]


def updated_in_a_buffer():
    """On a rank: a weight that shares memory with a buffer, after a step of AdamW with a rate of 0.1: both."""
    buffer = paddle.zeros([4])
    weight = paddle.create_parameter([4], "float32")
    buffer._share_buffer_to(weight)
    optimizer = paddle.optimizer.AdamW(0.1, parameters=[weight], weight_decay=0.0)
    weight.sum().backward()
    optimizer.step()
    return weight.numpy().astype("float64").round(3).tolist(), buffer.numpy().astype("float64").round(3).tolist()


@pytest.mark.parametrize(("device", "of_the_buffer"), [("cpu", -0.1), ("sim", 0.0)])
def test_on_simulated_cards_a_step_ends_what_a_weight_shares_with_a_buffer(device, of_the_buffer):
    """So stages 2 and 3 of sharding, which send that buffer, are no way to train there (chapter 12)."""
    weight, buffer = ranks.run(updated_in_a_buffer, 1, device=device, time_limit=SECONDS)[0]
    assert (weight, buffer) == ([-0.1] * 4, [of_the_buffer] * 4)
