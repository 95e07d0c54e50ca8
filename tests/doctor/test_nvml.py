"""What NVIDIA's library says becomes cards; a library that hangs, fails or is not there stops nobody."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import A100
from xpulab.doctor.nvml import read_nvml


def test_values_become_cards_and_those_that_a_card_does_not_have_are_none(machine):
    machine.nvml(A100, {"name": b"NVIDIA A100-SXM4-80GB".decode()})
    reading = read_nvml()
    assert (reading.tool, reading.outcome, reading.driver) == ("NVML", "ok", "550.127.05")
    card, bare = reading.cards
    assert (card.model, card.generation, card.pci_address) == ("NVIDIA A100-SXM4-80GB", "cuda", "0000:17:00.0")
    assert (card.memory_total_mib, card.memory_used_mib, card.power_w) == (81920, 1043, 61.42)
    assert (card.temperature_c, card.utilisation_percent, card.serial) == (36, 5, "1564720081234")
    assert (bare.index, bare.pci_address, bare.memory_total_mib, bare.power_w) == (1, None, None, None)


def test_a_card_that_has_fallen_off_the_bus_is_in_state_error(machine):
    machine.nvml(A100, "lost")
    reading = read_nvml()
    assert [card.state for card in reading.cards] == [None, "error"] and "card 1: GPU is lost" in reading.detail


@pytest.mark.parametrize(
    ("said", "outcome", "detail"),
    [
        ({"error": "NVML Shared Library Not Found"}, "missing", "Library Not Found"),
        ({"error": "Driver Not Loaded"}, "failed", "Driver Not Loaded"),
        ({"hangs": True}, "hung", "0.5 s"),
    ],
)
def test_a_library_that_does_not_answer_has_its_outcome(machine, said, outcome, detail):
    machine.nvml(**said)
    reading = read_nvml(timeout=0.5 if outcome == "hung" else 20)
    assert reading.outcome == outcome and detail in reading.detail and reading.cards == ()
