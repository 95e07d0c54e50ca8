"""The calls of the cases on simulated cards: all are right there, in groups of four and eight ranks, too."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from xpulab import sim
from xpulab.chapters.collectives import collective_calls, collective_cases
from xpulab.checks.table import Table

pytestmark = pytest.mark.integration

KNOWN = "all_reduce AVG call"
"""The row of a known issue."""


SECONDS = 240


def wrong_on_simulated_cards(n):
    """The names of the cases that n simulated cards answer wrongly. It loads the cards into this process."""
    sim.load(8)
    cases, answers = collective_calls.on_ranks(n, "sim", "quick", 0)
    return [case.name for case in cases if case.row != KNOWN and answers[case.name] != collective_cases.expected(case, "sim")]


@pytest.mark.parametrize("n", [3, 8])
def test_every_case_is_right_on_simulated_cards(n):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(wrong_on_simulated_cards, n).result(timeout=SECONDS) == []


def test_groups_of_eight_ranks_have_a_row_each():
    cases = collective_cases.make(8, "sim", "quick", 0)
    rows = Table("collectives.groups")
    answers = {case.name: collective_cases.expected(case, "sim") for case in cases}
    collective_cases.compare(rows, "groups", "sim", cases, answers)
    named = [row.case for row in rows.record("", 0.0).rows]
    assert "ranks 4, 5, 6, 7" in named and "ranks 0, 1, 4, 5" in named
