"""The tools xpu-smi and xpu_smi on PATH give one reading, whatever they are."""

from __future__ import annotations

import pytest

from tests.doctor.conftest import FORMATS
from xpulab.doctor.xpu_smi import read_xpu_smi


def test_healthy_kl3_tool_answers_in_full_and_one_form_completes_the_other(p800):
    reading = read_xpu_smi()
    assert (reading.outcome, reading.driver, len(reading.cards)) == ("ok", "5.0.21.26", 2)
    assert [card.temperature_c for card in reading.cards] == [41, 39]


def test_kl2_tool_without_query_is_read_from_its_other_forms(machine):
    machine.answering("xpu_smi", {"-m": "kl2_machine.txt", "": "kl2_table_narrow.txt"})
    reading = read_xpu_smi()
    assert (reading.tool, reading.outcome, reading.driver, reading.runtime) == ("xpu_smi", "ok", "4.0", "4.31")
    assert [card.power_w for card in reading.cards] == [62, 60]


def test_forms_that_show_different_cards_make_it_unreadable(machine):
    machine.answering("xpu-smi", {"-q": "kl3_query.txt", "-m": "kl2_machine.txt"})
    reading = read_xpu_smi()
    assert reading.outcome == "unreadable"
    assert "xpu-smi -q and xpu-smi -m show different cards: 2 cards" in reading.detail


@pytest.mark.parametrize(
    ("script", "outcome", "detail"),
    [
        (None, "missing", "neither xpu-smi nor xpu_smi is on PATH"),
        ("echo cannot open /dev/xpuctrl >&2; exit 3", "failed", "ended with status 3: cannot open /dev/xpuctrl"),
        ("exec /bin/sleep 60", "hung", "0.2 s"),
        ("echo 0x7f 0x45 0x4c 0x46", "unreadable", ""),
        (f"exec /bin/cat {FORMATS / 'intel.txt'}", "foreign", ""),
    ],
)
def test_a_tool_that_shows_no_cards_has_its_outcome(machine, script, outcome, detail):
    if script:
        machine.tool("xpu-smi", script)
    reading = read_xpu_smi(timeout=0.2 if outcome == "hung" else 10)
    assert reading.outcome == outcome and detail in reading.detail


def test_hanging_tool_is_not_asked_again_by_its_other_name(machine):
    for name in ("xpu-smi", "xpu_smi"):
        machine.tool(name, f"echo call >> {machine.calls}; exec /bin/sleep 60")
    read_xpu_smi(timeout=0.2)
    assert machine.calls.read_text().count("call") == 1


def test_kunluns_tool_is_found_behind_intels(machine):
    machine.answering("xpu-smi", {"": "intel.txt"})
    machine.answering("xpu_smi", {"-q": "kl3_query.txt", "-m": "kl3_machine.txt"})
    reading = read_xpu_smi()
    assert (reading.tool, reading.outcome) == ("xpu_smi", "ok")


@pytest.mark.parametrize("answers", [{"-q": "kl3_query.txt"}, {"-m": "kl3_machine.txt"}, {"": "kl3_table.txt"}])
def test_one_form_alone_is_enough(machine, answers):
    machine.answering("xpu-smi", answers)
    reading = read_xpu_smi()
    assert (reading.outcome, len(reading.cards)) == ("ok", 2)


def test_only_harmless_options_are_ever_used(machine):
    machine.answering("xpu-smi", {})
    machine.answering("xpu_smi", {})
    read_xpu_smi()
    assert set(machine.calls.read_text().splitlines()) == {"-q", "-m", ""}
