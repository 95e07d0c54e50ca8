"""Cards have memory of their own that is accounted for, runs out and comes back; they are there however they were loaded."""

from __future__ import annotations

import pytest

from xpulab import sim
from xpulab.errors import InputError

pytestmark = pytest.mark.integration

MIB = 2**20


@pytest.fixture(scope="module", params=["before", "after"])
def saw(seen, request):
    """What the probe saw on two cards of 64 MiB, loaded before or after the import of paddle."""
    return seen("cards", request.param)


@pytest.mark.parametrize(
    ("what", "value"),
    {
        "threads after load": 1,
        "child of an unused parent": 0,
        "child of a parent that used a card": 0,  # it gets an error
        "devices": ["sim:0", "sim:1"],
        "a tensor made before": [499500, 499500, [0, 3]],
        "place": "Place(sim:0)",
        "allocated": 16 * MIB,
        "peak": 32 * MIB,
        "after too much": 200.0,
        "freed": 0,
        "48 MiB after 2 x 16 freed": 48 * MIB,
        "to device": 4000,
        "to host": 4000,
        "between cards": 4000,
        "wrong copies of views": [],
    }.items(),
)
def test_the_probe_saw(saw, what, value):
    assert saw[what] == value


@pytest.mark.parametrize(
    ("what", "error", "says"),
    [
        ("another number", "InputError", "cannot load 3 simulated cards: this process already has 2"),
        ("too much", "MemoryError", "Out of memory error on sim:0. Cannot allocate 128.000000MB"),
    ],
)
def test_what_cannot_be_is_refused(saw, what, error, says):
    assert saw[what].startswith(f"{error}: ") and says in saw[what]


def test_the_allocator_keeps_memory_until_it_is_emptied(saw):
    assert saw["kept"] >= 32 * MIB
    assert saw["after empty_cache"] == [0, 0]


@pytest.mark.parametrize("cards", [0, -1, sim.MOST_CARDS + 1])
def test_numbers_of_cards_that_cannot_be(cards):
    with pytest.raises(InputError, match=f"choose 1 to {sim.MOST_CARDS}"):
        sim.environment(cards)


@pytest.mark.parametrize("memory", [0, 1000, 2**41])
def test_sizes_that_cannot_be(memory, monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_MEMORY", str(memory))
    with pytest.raises(InputError, match=f"{memory} bytes of memory"):
        sim.environment(1)


def test_a_size_in_the_environment_that_is_no_number(monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_MEMORY", "8GiB")
    with pytest.raises(InputError, match="XPULAB_SIM_MEMORY=8GiB: give a number of bytes"):
        sim.environment(1)


def test_faults_in_the_environment_are_checked_before_a_process_is_started(monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_FAULTS", "flop copy")
    with pytest.raises(InputError, match="'flop copy' is not ACTION SITE"):
        sim.environment(1)
