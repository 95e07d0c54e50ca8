"""Placed (distributed) tensors on simulated cards: operators of lists, and what Paddle refuses before the plug-in."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration
RANKS = 4


@pytest.fixture(scope="module")
def saw(seen):
    return seen("placed")


def test_lists_of_cut_tensors_are_not_cut_twice(saw):
    """Paddle 3.3.1 cuts them again while it copies a list to the host, for an operator without a kernel on the card."""
    assert [of_rank["lists_of_parts"] for of_rank in saw] == [[]] * RANKS


def test_paddle_refuses_a_second_gradient(saw):
    """When this fails, Paddle accumulates gradients of placed tensors on custom devices: remove the skips of chapter 10."""
    assert all("DistTensor doesn't support custom device" in of_rank["second_gradient"] for of_rank in saw)
