"""Faults of collectives: a changed value, or an error on every rank that is left, within the time limit."""

from __future__ import annotations

import pytest

from xpulab.sim.limits import DROP_EXIT_CODE

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def saw(seen):
    return seen("ranks", XPULAB_SIM_TIMEOUT="3")


RIGHT = [3.0] * 4


@pytest.mark.parametrize(
    ("fault", "of_rank_1", "injected"),
    [("none", RIGHT, 0), ("flip", [-3.0, 3.0, 3.0, 3.0], 1), ("delay", RIGHT, 1)],
)
def test_each_rank_has_its_value(saw, fault, of_rank_1, injected):
    assert saw[fault] == [[0, [RIGHT, 0, 1]], [0, [of_rank_1, injected, 1]]]


@pytest.mark.parametrize(("fault", "why"), [("fail", "injected fault"), ("lose", "is lost")])
def test_a_failed_collective_fails_on_all_ranks(saw, fault, why):
    (_, (first, _, _)), (_, (second, injected, _)) = saw[fault]
    assert first.startswith("RuntimeError") and "rank 1 failed in all_reduce" in first
    assert why in first and why in second
    assert injected == 1


@pytest.mark.parametrize("fault", ["drop", "hang"])
def test_a_rank_that_ends_or_never_comes_is_an_error_on_the_other_that_names_it(saw, fault):
    (code, (error, _, _)), of_rank_1 = saw[fault]
    assert code == 0
    assert error.startswith("RuntimeError") and "rank 1" in error
    if fault == "drop":
        assert of_rank_1 == [DROP_EXIT_CODE, None]
    else:
        _, (hung, injected, _) = of_rank_1
        assert hung.startswith("RuntimeError") and injected == 1
