"""Training on cards gives the CPU's losses to the last bit, and leaves no memory behind."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.integration

STEPS = 1000
EARLY = 50
"""Steps after which everything that is kept from step to step is there."""


@pytest.fixture(scope="module")
def cpu(seen):
    return seen("training", "cpu", "60")


@pytest.fixture(scope="module")
def sim(seen):
    return seen("training", "sim", str(STEPS))


def test_losses_and_weights_are_the_cpus(seen, cpu):
    sim = seen("training", "sim", "60")
    assert sim["losses"] == cpu["losses"]
    assert sim["weights"] == cpu["weights"]


def test_a_slow_card_computes_the_same(seen, cpu):
    slow = seen("training", "sim", "60", XPULAB_SIM_FAULTS="delay task p=0.2 seconds=0.0005 seed=1")
    assert slow["losses"] == cpu["losses"]
    assert slow["weights"] == cpu["weights"]


def test_the_network_was_on_the_card(sim):
    assert sim["places"] == ["Place(sim:0)"]


def test_it_learns(sim):
    assert sim["losses"][-1] < sim["losses"][0] / 10


def test_no_device_memory_is_lost_over_a_thousand_steps(sim):
    assert len(sim["memory"]) == STEPS
    assert len(set(sim["memory"][EARLY:])) == 1


def test_device_memory_comes_back(sim):
    assert sim["at the end"] < sim["memory"][-1]
    assert sim["at the end"] <= 4096  # what paddle itself keeps


def test_the_hosts_memory_does_not_grow(sim):
    assert sim["pages"][-1] - sim["pages"][EARLY] < 32 * 2**20
