"""xpu-smi is read in whatever format it answers; what is not understood is kept, and is never an alarm by itself."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import FORMATS
from xpulab.doctor.xpu_smi import read_xpu_smi

P800 = {"index": 0, "model": "P800 OAM", "generation": "KL3", "pci_address": "0000:1b:00.0"}
CARDS = {
    "kl3_table": (0, {**P800, "temperature_c": 41, "power_w": 93, "utilisation_percent": 17, "memory_used_mib": 2112}),
    "kl3_table_sriov": (1, {"model": "P800 VF", "generation": "KL3", "pci_address": "0000:5e:00.1", "memory_total_mib": 49152}),
    "kl3_machine": (
        1,
        {"model": "P800 OAM", "firmware": "1.39", "serial": "02K21A901CV0041B", "power_w": 88},
    ),
    "kl2_machine": (0, {"model": "R300", "memory_used_mib": 96, "power_w": 62}),
    "kl3_query": (0, {**P800, "firmware": "1.54", "memory_used_mib": 2112, "memory_total_mib": 98304, "power_w": 93.5}),
}
OPTIONS = {"table": "", "machine": "-m", "query": "-q"}


@pytest.mark.parametrize("name", CARDS)
def test_every_format_gives_the_numbers_of_a_card(machine, name):
    index, values = CARDS[name]
    machine.answering("xpu-smi", {OPTIONS[name.split("_")[-1] if name.split("_")[-1] in OPTIONS else "table"]: f"{name}.txt"})
    reading = read_xpu_smi()
    assert (reading.outcome, reading.unread) == ("ok", ())
    assert {field: getattr(reading.cards[index], field) for field in values} == values


def test_the_first_format_that_is_understood_is_enough(p800):
    reading = read_xpu_smi()
    assert (reading.driver, [card.firmware for card in reading.cards]) == ("5.0.21.26", ["1.54", "1.39"])
    assert p800.calls.read_text().splitlines() == ["-q"]


@pytest.mark.parametrize(
    ("name", "old", "new", "cards"),
    [
        ("kl3_query", "XPU 00000000:1D:00.0", "XPU-1 at 00000000:1D:00.0", 1),
        ("kl3_query", "Attached XPUs  ", "Number of XPUs ", 2),
        ("kl3_table", "|   1  P800 OAM           N/A   |", "| one  P800 OAM  |", 1),
        ("kl3_machine", "1450 1450 1450", "", 0),
        ("kl3_table", "Persistence-M", "Persistence", 2),
    ],
)
def test_another_wording_costs_no_more_than_its_line(machine, name, old, new, cards):
    text = (FORMATS / f"{name}.txt").read_text()
    assert old in text
    (machine.bin / "text").write_text(text.replace(old, new))
    machine.tool("xpu-smi", f"exec /bin/cat {machine.bin}/text")
    reading = read_xpu_smi()
    assert len(reading.cards) == cards and bool(reading.unread) == (cards < 2)


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        (None, "missing", "neither xpu-smi nor xpu_smi is on PATH"),
        ("echo cannot open /dev/xpuctrl >&2; exit 3", "failed", "ended with status 3: cannot open /dev/xpuctrl"),
        ("exec /bin/sleep 60", "hung", "0.2 s"),
        ("echo 0x7f 0x45 0x4c 0x46", "unreadable", "no known format"),
        ("echo '0 \"unbalanced'", "unreadable", "no known format"),
        (f"exec /bin/cat {FORMATS / 'intel.txt'}", "foreign", "Intel"),
    ],
)
def test_a_tool_that_shows_no_cards_has_its_outcome(machine, script, outcome, detail):
    if script:
        machine.tool("xpu-smi", script)
    reading = read_xpu_smi(timeout=0.2 if outcome == "hung" else 10)
    assert reading.outcome == outcome and detail in reading.detail
    assert bool(reading.unread) == (outcome == "unreadable")


def test_kunluns_tool_is_found_behind_intels_and_only_harmless_options_are_used(machine):
    machine.answering("xpu-smi", {"": "intel.txt"})
    machine.answering("xpu_smi", {"": "kl3_table.txt"})
    assert (read_xpu_smi().tool, read_xpu_smi().outcome) == ("xpu_smi", "ok")
    assert set(machine.calls.read_text().splitlines()) == {"-q", "-m", ""}
