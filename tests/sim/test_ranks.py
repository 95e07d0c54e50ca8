"""Faults of collectives: a changed value, or an error on every rank that is left, within the time limit."""

from __future__ import annotations

import paddle
import paddle.distributed as dist
import pytest

from tests.sim.counted import counters
from xpulab import ranks, sim
from xpulab.sim.limits import DROP_EXIT_CODE

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("in_fork_server")]

RIGHT = [3.0] * 4
SECONDS = 100


@pytest.fixture(autouse=True)
def short_waits(monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_TIMEOUT", "3")


def added(text):
    """On a rank: what it got from an all_reduce of 1 and 2 or its error and the number of faults injected."""
    dist.init_parallel_env()
    rank = dist.get_rank()
    value = paddle.full([4], float(rank + 1))
    sim.set_faults(text)
    try:
        dist.all_reduce(value)
        saw = value.tolist()
    except (RuntimeError, OSError, ValueError) as error:
        saw = f"{type(error).__name__}: {error}"
    return saw, counters(rank).faults


def run(fault):
    return ranks.run(added, 2, fault and f"{fault} kind=all_reduce rank=1", device="sim", time_limit=SECONDS)


@pytest.mark.parametrize(
    ("fault", "of_rank_1", "injected"),
    [
        ("", RIGHT, 0),
        ("flip collective bit=31 n=1", [-3.0, 3.0, 3.0, 3.0], 1),
        ("delay collective seconds=0.2", RIGHT, 1),
    ],
)
def test_each_rank_has_its_value(fault, of_rank_1, injected):
    assert list(run(fault)) == [(RIGHT, 0), (of_rank_1, injected)]


@pytest.mark.parametrize(
    ("fault", "of_rank_0", "of_rank_1"),
    [
        ("fail collective n=1", "rank 1 failed in all_reduce", "injected fault"),
        ("lose collective n=1", "rank 1 failed in all_reduce", "is lost"),
        ("hang collective n=1", "rank 1", ""),
    ],
)
def test_a_failed_or_hanging_collective_is_an_error_on_all_ranks(fault, of_rank_0, of_rank_1):
    (first, _), (second, injected) = run(fault)
    assert first.startswith("RuntimeError") and of_rank_0 in first
    assert second.startswith("RuntimeError") and of_rank_1 in second
    assert injected == 1


def test_a_rank_that_ends_is_named():
    with pytest.raises(ranks.RanksFailed, match=str(DROP_EXIT_CODE)) as raised:
        run("drop collective n=1")
    assert raised.value.root_cause == 1
