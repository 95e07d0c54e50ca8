"""Slots of fused buffers, and where the buffers can be tried."""

from __future__ import annotations

import pytest

from xpulab.chapters.memory.fused_buffers import Slot, overlaps, why_not

pytestmark = pytest.mark.unit


def test_neighbours_do_not_overlap():
    assert overlaps([Slot(256, 28), Slot(0, 256)]) == 0


def test_the_bytes_of_an_overlap_are_counted():
    assert overlaps([Slot(0, 140), Slot(128, 28), Slot(150, 8)]) == 12 + 6


def test_a_card_is_not_enough_for_two_ranks():
    assert why_not("xpu", 1) == "it needs two cards"
    assert why_not("xpu", 2) == ""
