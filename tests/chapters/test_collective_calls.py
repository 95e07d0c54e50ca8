"""The calls of the cases on simulated cards: all are right there, in groups of three and eight ranks, too."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from xpulab import sim
from xpulab.chapters.collectives import collective_calls, collective_cases
from xpulab.checks.table import Table
from xpulab.records.known_issues import known_issues_of_grid

pytestmark = pytest.mark.integration

GRIDS = {
    "collectives.reductions": collective_cases.reductions,
    "collectives.moves": collective_cases.moves,
    "all-to-all.values": collective_cases.exchanges,
}
SECONDS = 240


def wrong_on_simulated_cards(n):
    """The names of the cases that n simulated cards answer wrongly. It loads the cards into this process."""
    sim.load(8)
    wrong = []
    for name, grid in GRIDS.items():
        known, rows = known_issues_of_grid(name, "sim"), Table(name)
        cases = [case for case in grid(n, "sim").cases("quick", 0) if not any(issue.concerns(case.labels) for issue in known)]
        for case, answers in zip(cases, collective_calls.on_ranks(n, "sim")(cases), strict=True):
            collective_cases.add_row(n, "sim")(rows, case, answers)
        wrong += [row.case for row in rows.record("", 0.0).rows if row.outcome != "passed"]
    return wrong


@pytest.mark.usefixtures("in_fork_server")
@pytest.mark.parametrize("n", [3, 8])
def test_every_case_is_right_on_simulated_cards(n):
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(wrong_on_simulated_cards, n).result(timeout=SECONDS) == []
