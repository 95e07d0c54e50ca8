"""Cards have memory of their own that is accounted for, runs out and comes back; they are there however they were loaded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from xpulab import sim
from xpulab.errors import InputError

pytestmark = pytest.mark.integration

MIB = 2**20


@pytest.fixture(scope="module", params=["before", "after"])
def saw(seen, request):
    """What the probe saw on two cards of 64 MiB, loaded before or after the import of paddle."""
    return seen("cards", request.param)


def test_loading_starts_no_thread(saw):
    assert saw["threads after load"] == 1


def test_a_process_that_merely_loaded_may_fork(saw):
    assert saw["child of an unused parent"] == 0


def test_a_child_of_a_process_that_used_a_card_gets_an_error(saw):
    assert saw["child of a parent that used a card"] == 0


def test_another_number_of_cards_is_refused(saw):
    assert saw["another number"].startswith("InputError: cannot load 3 simulated cards: this process already has 2")


def test_another_size_is_refused(saw):
    assert "cannot load simulated cards of 33554432 bytes" in saw["another size"]


def test_a_card_that_is_not_there_has_no_counters(saw):
    assert saw["no such card"].startswith("InputError: there is no simulated card 2")


def test_paddle_lists_the_cards(saw):
    assert saw["devices"] == ["sim:0", "sim:1"]


def test_tensors_from_before_go_on(saw):
    assert saw["a tensor made before"] == [499500, 499500, [0, 3]]


def test_a_tensor_is_on_its_card(saw):
    assert saw["place"] == "Place(sim:0)"


def test_allocated_memory_is_counted_on_its_card(saw):
    assert saw["allocated"] == 16 * MIB
    assert saw["other card"] == 0


def test_peak_memory_is_counted(saw):
    assert saw["peak"] == 32 * MIB
    assert saw["peak after reset"] == 0


def test_out_of_memory_raises_and_names_the_card(saw):
    assert saw["too much"].startswith("MemoryError")
    assert "Out of memory error on sim:0. Cannot allocate 128.000000MB" in saw["too much"]


def test_after_out_of_memory_the_card_works(saw):
    assert saw["after too much"] == 200.0


def test_freed_memory_comes_back(saw):
    assert saw["freed"] == 0
    assert saw["48 MiB after 2 x 16 freed"] == 48 * MIB


def test_the_allocator_keeps_memory_until_it_is_emptied(saw):
    assert saw["kept"] >= 32 * MIB
    assert saw["after empty_cache"] == [0, 0]
    assert saw["frees"]


def test_copies_are_counted(saw):
    assert (saw["to device"], saw["to host"], saw["between cards"]) == (4000, 4000, 4000)


def test_launches_are_counted(saw):
    assert saw["launches"] == 1


def test_collectives_are_counted_only_when_there_are_any(saw):
    assert saw["no collectives"]


def test_random_state_can_be_set_and_seeded(saw):
    assert saw["random state"]
    assert saw["seed"]


def test_the_parts_of_a_split_stay_on_the_card(saw):
    """Traced as fleet traces it to fill the weights: computed by the CPU, they would be there afterwards."""
    rows = [[7 * row + column for column in range(7)] for row in range(6)]
    parts = [[row[start:end] for row in rows] for start, end in ((0, 1), (1, 5), (5, 7))]
    assert saw["split"] == [["Place(sim:0)", part] for part in parts]


@pytest.mark.parametrize("cards", [0, -1, sim.MOST_CARDS + 1])
def test_numbers_of_cards_that_cannot_be(cards):
    with pytest.raises(InputError, match=f"choose 1 to {sim.MOST_CARDS}"):
        sim.environment(cards)


@pytest.mark.parametrize("memory", [0, 1000, 2**41])
def test_sizes_that_cannot_be(memory):
    with pytest.raises(InputError, match=f"{memory} bytes of memory"):
        sim.environment(1, memory_bytes=memory)


def test_a_size_in_the_environment_that_is_no_number(monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_MEMORY", "8GiB")
    with pytest.raises(InputError, match="XPULAB_SIM_MEMORY=8GiB: give a number of bytes"):
        sim.environment(1)


def test_faults_in_the_environment_are_checked_before_a_process_is_started(monkeypatch):
    monkeypatch.setenv("XPULAB_SIM_FAULTS", "flop copy")
    with pytest.raises(InputError, match="column 1, 'flop'"):
        sim.environment(1)


def test_a_new_process_has_as_many_cards_as_there_may_be(library):
    code = """import sys, paddle
paddle.set_device(f"sim:{sys.argv[1]}")
print(len(paddle.device.get_available_custom_device()), paddle.ones([2]).place)"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(sim.MOST_CARDS - 1)],
        env=os.environ | sim.environment(sim.MOST_CARDS),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == f"{sim.MOST_CARDS} Place(sim:{sim.MOST_CARDS - 1})\n", done.stderr
