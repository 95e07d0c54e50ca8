"""Messages are as large as level and memory allow."""

from __future__ import annotations

import pytest

from xpulab.chapters.collectives.messages import LARGEST, free_bytes, message_sizes
from xpulab.checks.ledger import ledger
from xpulab.records.record import CardFacts, RunContext


@pytest.fixture
def cards(monkeypatch):
    def show(*facts):
        monkeypatch.setattr(ledger, "run_context", RunContext("xpu", len(facts), card_facts=facts))

    return show


def test_a_card_with_much_memory_sends_one_gibibyte(cards):
    cards(CardFacts(0, "P800", memory_used_mib=100, memory_total_mib=98304))
    assert message_sizes("standard", "xpu")[-1] == LARGEST


def test_the_card_with_the_least_free_memory_decides(cards):
    cards(
        CardFacts(0, "P800", memory_used_mib=100, memory_total_mib=98304),
        CardFacts(1, "P800", memory_used_mib=96304, memory_total_mib=98304),
    )
    assert message_sizes("standard", "xpu")[-1] * 4 == 256 << 20


def test_memory_that_the_tool_does_not_show_counts_as_none():
    assert free_bytes([CardFacts(0, "P800")]) == free_bytes([]) == 0
