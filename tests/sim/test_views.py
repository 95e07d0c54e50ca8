"""Copies out of views and into them are on cards what they are on the CPU, to the last bit, in every dtype."""

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
