"""Several communicators at once, buffers that are both ends of a call, the most ranks, and waiting that costs nothing."""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
import pytest

from xpulab.sim import MOST_CARDS

pytestmark = pytest.mark.integration

LONG = 3_000_000


def test_results_may_replace_what_was_put_in(ranks: Any) -> None:
    length = 400_001  # several rounds of the segment, the last one short

    def one(group: Any) -> None:
        base = np.arange(length, dtype=np.float32)
        data = base + group.rank
        group.all_reduce(data, data, "FLOAT32", "SUM")
        np.testing.assert_array_equal(data, base + base + base + 3)

        data = base * (group.rank + 1)
        group.reduce(data, data, "FLOAT32", "MAX", 1)
        np.testing.assert_array_equal(data, base * (3 if group.rank == 1 else group.rank + 1))

        gathered = np.zeros((3, length), np.float32)
        gathered[group.rank] = base * group.rank
        group.all_gather(gathered[group.rank], gathered, "FLOAT32")
        np.testing.assert_array_equal(gathered, [base * rank for rank in range(3)])

        for place in (group.rank, 0):  # its own part, and the beginning
            data = np.concatenate([base * (part + group.rank) for part in range(3)])
            group.reduce_scatter(data, data[place * length : (place + 1) * length], "FLOAT32", "SUM")
            expected = base * group.rank + base * (group.rank + 1) + base * (group.rank + 2)
            np.testing.assert_array_equal(data[place * length : (place + 1) * length], expected)

        parts = [base * 10 * group.rank + to for to in range(3)]
        group.all_to_all(parts, parts, "FLOAT32")
        np.testing.assert_array_equal(parts, [base * 10 * source + group.rank for source in range(3)])

    ranks.values(3, one)


def test_messages_keep_their_order(ranks: Any) -> None:
    """Short ones behind long ones that are still being delivered, and collectives between them."""

    def one(group: Any) -> None:
        lengths = [LONG, 1, 0, 50_000, 7, LONG // 3]
        for turn, length in enumerate(lengths):
            if group.rank == 0:
                group.exchange("INT64", send=[(np.full(length, turn), 1)])
        data = np.ones(1)
        group.all_reduce(data, data, "FLOAT64", "SUM")
        for turn, length in enumerate(lengths):
            if group.rank == 1:
                got = np.empty(length, np.int64)
                group.exchange("INT64", receive=[(got, 0)])
                np.testing.assert_array_equal(got, np.full(length, turn))

    ranks.values(2, one)


def test_as_many_ranks_as_there_may_be(ranks: Any) -> None:
    def one(group: Any) -> int:
        data = np.arange(1_000_000, dtype=np.int64) + group.rank
        result = np.empty_like(data)
        group.all_reduce(data, result, "INT64", "SUM")
        np.testing.assert_array_equal(result, MOST_CARDS * np.arange(1_000_000) + sum(range(MOST_CARDS)))
        send = [np.array([100 * group.rank + to]) for to in range(MOST_CARDS)]
        receive = [np.zeros(1, np.int64) for _ in range(MOST_CARDS)]
        group.all_to_all(send, receive, "INT64")
        assert [int(part[0]) for part in receive] == [100 * source + group.rank for source in range(MOST_CARDS)]
        for _ in range(200):
            group.all_reduce(data[:3], result[:3], "INT64", "MAX")
        return int(result[0])

    assert ranks.values(MOST_CARDS, one) == [MOST_CARDS - 1] * MOST_CARDS


@pytest.mark.parametrize("waiting_for", ["a collective", "a message"])
def test_waiting_costs_no_processor_time(ranks: Any, waiting_for: str) -> None:
    """All ranks but the last wait 2 s for it."""
    last = MOST_CARDS - 1

    def processor_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return used.ru_utime + used.ru_stime

    def one(group: Any) -> float:
        data = np.ones(1)
        group.all_reduce(data, data, "FLOAT64", "SUM")
        before = processor_seconds()
        if group.rank == last:
            time.sleep(2)  # what the others wait for
        if waiting_for == "a collective":
            group.all_reduce(data, data, "FLOAT64", "SUM")
        elif group.rank == last:
            group.exchange("FLOAT64", send=[(data, rank) for rank in range(last)])
        else:
            group.exchange("FLOAT64", receive=[(data, last)])
        return processor_seconds() - before

    used = ranks.values(MOST_CARDS, one)
    assert max(used) < 1.0
    assert sum(used) < 2.0
