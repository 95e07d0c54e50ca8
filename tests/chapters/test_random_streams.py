"""Correlations are small for independent numbers, and large for repeated blocks, shared seeds and shared streams."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from xpulab.chapters.numerics import random_streams

COUNT = 1 << 14
NUMBERS = random_streams.standardized(np.random.default_rng(0).random(COUNT))


def test_independent_numbers_have_no_correlation():
    assert max(random_streams.inside(NUMBERS).values()) < 5


@pytest.mark.parametrize("size", [1, 8, 64, 1024, 4096])
def test_repeated_blocks_show_at_their_distance(size):
    repeated = np.repeat(NUMBERS.reshape(-1, 2, size)[:, :1], 2, axis=1).reshape(-1)
    assert random_streams.inside(repeated)[f"distance {size}"] > 20


def test_a_repeated_half_and_a_slope_are_seen():
    half = np.concatenate([NUMBERS[: COUNT // 2]] * 2)
    assert random_streams.inside(half)["halves"] > 20
    assert random_streams.inside(random_streams.standardized(NUMBERS + np.linspace(0, 1, COUNT)))["place"] > 20


def test_streams_differ_go_on_and_leave_the_state_as_it_was():
    paddle.seed(3)
    expected = paddle.randn([4]).numpy()
    paddle.seed(3)
    first, other, later = random_streams.drawn_in_stream({"a": 1, "b": 2}, ["a", "b", "a"], 100)
    assert np.array_equal(paddle.randn([4]).numpy(), expected)
    assert not any(np.array_equal(first, each) for each in (other, later))


def test_seeds_in_a_row_are_the_draws_of_these_seeds():
    draws = random_streams.seeds_in_a_row(5, 2, 100)
    paddle.seed(6)
    assert np.array_equal(draws[1], random_streams.standardized(paddle.randn([100]).numpy()))
    assert not np.array_equal(*draws)
