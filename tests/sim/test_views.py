"""Views, masks, slices and the gradients through them are on cards what they are on the CPU, to the last bit."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def both(seen):
    return seen("views", "cpu"), seen("views", "sim")


def test_every_case_is_the_cpus(both):
    cpu, sim = both
    assert {name: sim[name] for name in cpu} == cpu


def test_the_cases_compute_something(both):
    cpu, _ = both
    failed = {name: result for name, result in cpu.items() if isinstance(result, str)}
    assert not failed


def test_defects_of_indexing_stay_visible(both):
    """Were they to vanish here, sim would hide what the CPU shows. Paddle 3.3.1: a write through a view goes elsewhere."""
    cpu, sim = both
    named = [name for name in cpu if name.startswith("defect")]
    assert len(named) == 2
    assert [sim[name] for name in named] == [cpu[name] for name in named]
