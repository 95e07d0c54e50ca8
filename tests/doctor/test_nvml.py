"""What NVIDIA's library says becomes cards; a library that hangs, fails or is not there stops nobody."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import A100, FORMATS
from xpulab.doctor.nvml import read_nvml


def test_values_become_cards_and_those_that_a_card_does_not_have_are_none(machine):
    machine.nvml(A100, {"name": b"NVIDIA A100-SXM4-80GB".decode()})
    reading = read_nvml()
    assert (reading.tool, reading.outcome, reading.driver) == ("NVML", "ok", "550.127.05")
    card, bare = reading.cards
    assert (card.model, card.generation, card.pci_address) == ("NVIDIA A100-SXM4-80GB", "cuda", "0000:17:00.0")
    assert (card.memory_total_mib, card.memory_used_mib, card.power_w) == (81920, 1043, 61.42)
    assert (card.temperature_c, card.serial) == (36, "1564720081234")
    assert (bare.index, bare.pci_address, bare.memory_total_mib, bare.power_w) == (1, None, None, None)


def test_a_card_that_does_not_answer_has_its_state(machine):
    machine.nvml(A100, "lost", "reset")
    reading = read_nvml()
    assert [card.state for card in reading.cards] == [None, "error", "requires reset"]
    assert "card 1: GPU is lost" in reading.detail


def test_health_is_read_of_rows_or_pages(machine):
    rows = {"ecc": [2, 9], "rows": [4, 3, 0, 1], "reasons": 0x44}
    machine.nvml({**A100, **rows}, {**A100, "ecc": [0, 0], "pages": [17, 18], "reasons": 0x4}, A100)
    health = [
        (card.uncorrectable_errors, card.uncorrectable_ever, card.retired_pages, card.is_throttled, card.state)
        for card in read_nvml().cards
    ]
    assert health == [(2, 9, 3, True, "error"), (0, 0, 2, False, None), (None,) * 5]


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
    (machine.bin / "nvidia-smi").unlink()
    reading = read_nvml(timeout=0.5 if outcome == "hung" else 20)
    assert reading.outcome == outcome and detail in reading.detail and reading.cards == ()


def test_a_library_that_prints_is_not_understood_and_its_text_is_kept(machine):
    machine.nvml(A100, prints="deprecated: use something else\n")
    (machine.bin / "nvidia-smi").unlink()
    reading = read_nvml()
    assert (reading.outcome, reading.raw.startswith("deprecated: use")) == ("unreadable", True)


@pytest.fixture
def without_the_package(machine, monkeypatch):
    """A machine whose environment does not have nvidia-ml-py; its nvidia-smi prints the given text."""
    monkeypatch.setattr("xpulab.doctor.nvml.importlib.util.find_spec", lambda name: None)

    def prints(text: str):
        (machine.bin / "text").write_text(text)
        machine.tool("nvidia-smi", f'test "$*" = "-q -x" && exec /bin/cat {machine.bin}/text')
        return read_nvml()

    return prints


QUERY = (FORMATS / "nvidia_query.xml").read_text()


def test_without_the_package_the_tool_gives_the_same_values(without_the_package):
    reading = without_the_package(QUERY)
    assert (reading.tool, reading.outcome, reading.driver, reading.unread) == ("nvidia-smi", "ok", "550.127.05", ())
    card, bare = reading.cards
    assert (card.index, card.model, card.generation, card.pci_address) == (0, "NVIDIA A100-SXM4-80GB", "cuda", "0000:17:00.0")
    assert (card.memory_total_mib, card.memory_used_mib, card.power_w) == (81920, 1043, 61.42)
    assert (card.temperature_c, card.serial) == (36, "1564720081234")
    assert (card.uncorrectable_errors, card.uncorrectable_ever, card.retired_pages, card.is_throttled) == (0, 0, 0, False)
    assert (bare.index, bare.memory_total_mib, bare.uncorrectable_errors, bare.is_throttled) == (1, None, None, None)


@pytest.mark.parametrize(
    ("old", "new", "field", "value"),
    [
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2", "uncorrectable_errors", 2),
        ("<remapped_row_unc>0", "<remapped_row_unc>5", "retired_pages", 5),
        ("<retired_count>N/A", "<retired_count>7", "retired_pages", 7),
        ("<remapped_row_failure>No", "<remapped_row_failure>Yes", "state", "error"),
        ("<reset_required>No", "<reset_required>Yes", "state", "requires reset"),
        ("<gpu_temp>36 C", "<gpu_temp>[GPU requires reset]", "state", "requires reset"),
        ("sw_thermal_slowdown>Not Active", "sw_thermal_slowdown>Active", "is_throttled", True),
    ],
)
def test_of_the_tool_each_sign_of_a_bad_card_is_read(without_the_package, old, new, field, value):
    assert old in QUERY
    card, other = without_the_package(QUERY.replace(old, new, 1)).cards
    assert (getattr(card, field), getattr(other, field)) == (value, None)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("", "unreadable"),
        ("No devices were found", "unreadable"),
        (QUERY[:900], "unreadable"),
        (QUERY.replace("<gpu id=", "<gpu name="), "unreadable"),
        (QUERY.replace("<attached_gpus>2", "<attached_gpus>8"), "ok"),
        (QUERY.replace("<gpu ", "<card ").replace("</gpu>", "</card>"), "ok"),
    ],
)
def test_what_is_not_understood_of_the_tool_counts_no_cards_and_is_kept(without_the_package, text, outcome):
    reading = without_the_package(text)
    assert (reading.outcome, reading.counts_cards, reading.raw) == (outcome, False, text)
