"""Several communicators at once, buffers that are both ends of a call, the most ranks, and waiting that costs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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
