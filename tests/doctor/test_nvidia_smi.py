"""The values of nvidia-smi are read; those that a card does not have become None."""

from __future__ import annotations

import pytest

from xpulab.doctor.nvidia_smi import parse_values, read_nvidia_smi


@pytest.fixture
def nvidia_smi(machine, formats):
    machine.tool("nvidia-smi", f"exec /bin/cat {formats / 'nvidia.txt'}")
    return read_nvidia_smi()


def test_values_become_cards_and_bracketed_ones_are_absent(nvidia_smi):
    assert nvidia_smi.driver == "550.127.05"
    card, other = nvidia_smi.cards
    assert (card.model, card.generation, card.pci_address) == ("NVIDIA A100-SXM4-80GB", "cuda", "0000:17:00.0")
    assert (card.memory_total_mib, card.power_w, card.utilisation_percent, card.clock_mhz) == (81920, 61.42, 5, 1410)
    assert (other.serial, other.memory_total_mib, other.memory_used_mib, other.power_w) == (None, None, None, None)


def test_tool_without_a_driver_failed(machine, formats):
    machine.tool("nvidia-smi", f"/bin/cat {formats / 'nvidia_without_driver.txt'}; exit 9")
    reading = read_nvidia_smi()
    assert reading.outcome == "failed"
    assert "couldn't communicate with the NVIDIA driver" in reading.detail


def test_no_tool_is_missing(machine):
    assert read_nvidia_smi().outcome == "missing"


@pytest.mark.parametrize("text", ["No devices were found\n", "0, A100\n", "x" + ", y" * 10])
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError):
        parse_values(text)
