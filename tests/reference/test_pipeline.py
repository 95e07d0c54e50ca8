"""The times, the bubble and the memory of a pipeline are those of orders that can be followed by hand."""

from __future__ import annotations

import pytest

from xpulab.reference.pipeline import bubble, end_times, most_kept

TWO_RANKS = [
    [("F", 0, 0), ("F", 0, 1), ("B", 0, 0), ("B", 0, 1)],
    [("F", 1, 0), ("B", 1, 0), ("F", 1, 1), ("B", 1, 1)],
]
"""1F1B of two micro-batches on two ranks."""


def test_each_piece_starts_as_early_as_its_rank_and_its_needs_allow():
    assert end_times(TWO_RANKS) == {
        ("F", 0, 0): 1,
        ("F", 0, 1): 2,
        ("F", 1, 0): 2,
        ("B", 1, 0): 4,
        ("B", 0, 0): 6,
        ("F", 1, 1): 5,
        ("B", 1, 1): 7,
        ("B", 0, 1): 9,
    }


def test_the_bubble_is_the_idle_share_of_the_time():
    assert bubble(TWO_RANKS) == pytest.approx(3 / 9)


def test_a_piece_of_one_of_two_stages_takes_half_as_long():
    order = [[("F", 0, 0), ("F", 1, 0), ("B", 1, 0), ("B", 0, 0)]]
    assert end_times(order, stages_per_rank=2)["B", 0, 0] == 3


def test_an_order_in_which_ranks_wait_for_each_other_is_an_error():
    waiting = [[("B", 0, 0), ("F", 0, 0)], [("F", 1, 0), ("B", 1, 0)]]
    with pytest.raises(RuntimeError, match="deadlock"):
        end_times(waiting)


def test_activations_are_kept_from_the_forward_to_the_backward_pass():
    assert [most_kept(order) for order in TWO_RANKS] == [2, 1]
