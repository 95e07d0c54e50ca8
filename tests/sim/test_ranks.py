"""Faults of collectives: a changed value, or an error on every rank that is left, within the time limit."""

from __future__ import annotations

import pytest

from xpulab.sim.limits import DROP_EXIT_CODE

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def saw(seen):
    return seen("ranks", XPULAB_SIM_TIMEOUT="3")


def test_without_faults_the_sum_is_right(saw):
    assert saw["none"] == [[0, [[3.0] * 4, 0, 1]]] * 2


def test_a_flipped_bit_is_seen_on_its_rank(saw):
    assert saw["flip"] == [[0, [[3.0] * 4, 0, 1]], [0, [[-3.0, 3.0, 3.0, 3.0], 1, 1]]]


def test_a_late_rank_is_waited_for(saw):
    assert saw["delay"] == [[0, [[3.0] * 4, 0, 1]], [0, [[3.0] * 4, 1, 1]]]


def test_a_failed_collective_fails_on_all_ranks(saw):
    (_, (first, _, _)), (_, (second, injected, _)) = saw["fail"]
    assert first.startswith("RuntimeError")
    assert "injected fault" in second
    assert injected == 1


def test_a_dropped_rank_is_an_error_on_the_other(saw):
    (code, (error, _, _)), dropped = saw["drop"]
    assert dropped == [DROP_EXIT_CODE, None]
    assert code == 0
    assert error.startswith("RuntimeError") and "rank 1" in error


def test_a_rank_that_never_comes_is_named(saw):
    (code, (error, _, _)), (_, (hung, injected, _)) = saw["hang"]
    assert code == 0
    assert error.startswith("RuntimeError") and "rank 1" in error
    assert hung.startswith("RuntimeError")
    assert injected == 1
