"""Ranks with a simulated card each."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable

import cloudpickle
import paddle
import paddle.distributed as dist
import pytest

from xpulab import ranks, sim

pytestmark = pytest.mark.integration

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def reduced() -> tuple:
    own_card = str(paddle.ones([1]).place)
    dist.init_parallel_env()
    value = paddle.to_tensor([float(dist.get_rank() + 1)])
    dist.all_reduce(value)
    return own_card, str(value.place), value.numpy().tolist(), sim.loaded_cards()


@pytest.mark.parametrize("launch", [False, True])
def test_each_rank_computes_on_its_own_card(launch: bool):
    results = ranks.run(reduced, 2, device="sim", launch=launch)

    assert results == [("Place(sim:0)", "Place(sim:0)", [3.0], 2), ("Place(sim:1)", "Place(sim:1)", [3.0], 2)]


def sleeps() -> None:
    time.sleep(1000)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("fails", [sleeps, is_killed])
def test_the_rank_that_the_cards_wait_for_is_the_root_cause(fails: Callable[[], None]):
    def work() -> list:
        dist.init_parallel_env()
        value = paddle.to_tensor([1.0])
        dist.all_reduce(value)
        value.numpy()
        if dist.get_rank() == 1:
            fails()
        dist.all_reduce(value)
        return value.numpy().tolist()

    with pytest.raises(ranks.RanksFailed) as raised:
        ranks.run(work, 2, device="sim", time_limit=3.0)

    assert raised.value.root_cause == 1
