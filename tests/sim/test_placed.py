"""Placed (distributed) tensors on simulated cards: reshard, operators of lists, and what Paddle refuses before the plug-in."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.integration
RANKS = 4


@pytest.fixture(scope="module")
def saw(seen):
    return seen("placed")


@pytest.mark.parametrize(
    ("move", "collective"),
    [
        ("P to R", {"all_reduce": 1}),
        ("P to S0", {"reduce_scatter": 1}),
        ("S0 to R", {"all_gather": 1}),
        ("S0 to S1", {"all_to_all": 1}),
        ("R to S0", {}),
        ("R to P", {}),
        ("S0 to P", {"all_gather": 1}),
    ],
)
def test_each_change_of_placement_uses_its_collective(saw, move, collective):
    assert [of_rank["collectives_of_moves"][move][0] for of_rank in saw] == [collective] * RANKS


def test_a_whole_becomes_summands_that_add_up_to_it(saw):
    held = [np.array(of_rank["collectives_of_moves"]["R to P"][1]) for of_rank in saw]
    assert (sum(held) == np.arange(1, 97).reshape(8, 12)).all()


def test_uneven_and_empty_parts_are_moved_exactly(saw):
    assert [of_rank["wrong_sizes"] for of_rank in saw] == [[]] * RANKS


def test_every_type_is_moved_exactly(saw):
    assert [of_rank["wrong_types"] for of_rank in saw] == [[]] * RANKS


def test_summands_are_combined_in_every_way(saw):
    assert [of_rank["wrong_kinds"] for of_rank in saw] == [[]] * RANKS


def test_lists_of_cut_tensors_are_not_cut_twice(saw):
    """Paddle 3.3.1 cuts them again while it copies a list to the host, for an operator without a kernel on the card."""
    assert [of_rank["lists_of_parts"] for of_rank in saw] == [[]] * RANKS


def test_parts_are_sent_to_a_mesh_of_other_ranks(saw):
    upper, lower = [[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]
    held = [of_rank["to_other_ranks"] for of_rank in saw]
    assert [each["[2, 3]"] for each in held] == [None, None, upper, lower]
    assert [each["[1, 2]"] for each in held] == [None, upper, lower, None]


def test_paddle_refuses_a_second_gradient(saw):
    """When this fails, Paddle accumulates gradients of placed tensors on custom devices: remove the skips of chapter 08."""
    assert all("DistTensor doesn't support custom device" in of_rank["second_gradient"] for of_rank in saw)


def test_all_to_all_of_nothing_runs_on_the_cards(saw):
    shapes = [[0, 4]] * RANKS + [[0]]
    assert [of_rank["nothing_to_all"] for of_rank in saw] == [[shapes, 2]] * RANKS


def test_a_flipped_bit_of_what_is_gathered_is_seen_on_its_rank(saw):
    damaged = [of_rank["with_a_fault"] for of_rank in saw]
    assert damaged[1] == [-1.0, 1.0, 1.0, 1.0]
    assert damaged[0] == damaged[2] == damaged[3] == [1.0] * 4
