"""Cards that claim to be the same one are found in what a vendor's tool lists."""

from __future__ import annotations

from dataclasses import replace

from xpulab.chapters.environment.card_identity import repeated
from xpulab.doctor.cards import Card

P800 = [Card(number, "P800 OAM", "KL3", f"0000:{number + 3:02x}:00.0", f"02K15K624CV0030{number}") for number in range(3)]


def test_a_virtual_card_has_the_serial_number_of_another():
    cards = [*P800[:2], replace(P800[2], serial=P800[0].serial)]
    assert repeated(cards) == {"index": ["none"], "PCI address": ["none"], "serial number": ["02K15K624CV00300"]}


def test_what_the_tool_does_not_show_is_left_out():
    assert repeated([Card(0, "R200"), Card(1, "R200")]) == {"index": ["none"]}


def test_gpus_on_one_board_may_share_its_serial_number():
    cards = [Card(number, "NVIDIA A16", "cuda", f"0000:{number}:00.0", "1325") for number in range(4)]
    assert "serial number" not in repeated(cards)
