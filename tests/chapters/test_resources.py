"""What a chapter says before it starts, and what it refuses."""

from __future__ import annotations

import numpy as np
import psutil
import pytest

from xpulab.chapters.shared import resources
from xpulab.errors import InputError
from xpulab.records.record import CardFacts


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch):
    """The threads of this process stay as they are."""
    monkeypatch.setenv(resources.VARIABLE, "1")


def test_too_much_memory_is_refused():
    with pytest.raises(InputError, match=r"needs 1000000\.0 GB of memory for this model"):
        resources.require(memory=1e15, disk=0, seconds=1)


def test_too_much_disk_is_refused_with_the_variable_to_set():
    with pytest.raises(InputError, match="TMPDIR"):
        resources.require(memory=0, disk=1e18, seconds=1)


def test_freed_memory_goes_back_to_the_system():
    """Blocks of 16 MB in a reference cycle: the C library keeps such blocks unless it is told to return them."""
    used = psutil.Process().memory_info
    blocks: list[object] = []
    blocks.append([np.ones(2**21) for _ in range(16)])
    blocks.append(blocks)
    before = used().rss
    del blocks
    resources.free_memory()
    assert before - used().rss > 200 * 2**20


def test_what_is_free_on_the_first_card_is_its_memory_less_what_is_used():
    first, second = CardFacts(0, "P800", memory_used_mib=24, memory_total_mib=1024), CardFacts(1, "P800", memory_total_mib=1)
    assert resources.free_on_card((first, second)) == 1000 * 2**20


@pytest.mark.parametrize("cards", [(), (CardFacts(0, "P800"),)], ids=["no card", "no memory shown"])
def test_what_the_tool_does_not_show_is_no_limit(cards):
    assert resources.free_on_card(cards) == float("inf")
