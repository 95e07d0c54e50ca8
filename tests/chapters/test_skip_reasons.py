"""Why checks are skipped on a CPU or on simulated cards: what Paddle does there.

A release that can do more fails here, and then the skip must go.
"""

from __future__ import annotations

import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks

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


def test_paddle_switches_loss_scaling_off_on_the_cpu():
    with pytest.warns(UserWarning):
        assert not paddle.amp.GradScaler(init_loss_scaling=8.0).is_enable()


def test_a_wheel_for_the_cpu_has_no_pinned_memory():
    assert message_of(lambda: paddle.ones([2]).pin_memory())


def test_the_cpu_has_no_bfloat16_for_a_causal_mask():
    ones = [paddle.ones([2, 2], dtype) for dtype in ("float32", "bfloat16")]
    assert [bool(message_of(lambda each=each: paddle.tril(each))) for each in ones] == [False, True]
