"""Rates beside a data sheet: what is measured, in which unit, and which bounds a rate has."""

from __future__ import annotations

import pytest

from xpulab.chapters.environment.card_rates import rates_of
from xpulab.chapters.shared import data_sheet
from xpulab.chapters.shared.data_sheet import Rate
from xpulab.chapters.shared.device import Device
from xpulab.checks import compare
from xpulab.checks.ledger import ledger
from xpulab.devices import SIMULATED
from xpulab.records.hardware import Sheet
from xpulab.records.record import CardFacts, RunContext

WITHOUT_PINNED_MEMORY = Device(SIMULATED, 1, "cpu")


@pytest.fixture
def card(monkeypatch):
    """A run on two P800, as its report would show it."""
    facts = tuple(CardFacts(index, "P800 OAM", memory_total_mib=98304) for index in range(2))
    monkeypatch.setattr(ledger, "run_context", RunContext("xpu", 1, {}, {}, facts))


def rates(sheet, types=("float32", "float64"), kept=None):
    """By case the rates where each action takes a second: the first size is enough."""
    measured = rates_of(sheet, types, kept or {}, ["cpu"], lambda action: 1.0, WITHOUT_PINNED_MEMORY)
    return {rate.case: rate for rate in measured}


def test_products_are_measured_in_the_types_of_the_sheet(card):
    found = rates(Sheet("a card", ("P800 OAM",), "a test", tflops={"float32": 1e-3, "float16": 2e-3}))
    rate = found["cpu, product, float32"]
    assert (rate.unit, rate.promised, rate.value) == ("TFLOP/s", 1e-3, pytest.approx(2 * 256**3 / 1e12))
    assert "cpu, product, float64" not in found


def test_a_product_of_float32_that_keeps_the_bits_of_tf32_is_compared_with_that_number(card):
    found = rates(Sheet("a card", ("P800 OAM",), "a test", tflops={"float32": 1, "tf32": 8}), kept={"float32": 10})
    assert found["cpu, product, tf32"].promised == 8 and "cpu, product, float32" not in found


def test_a_card_without_numbers_is_measured_and_shown_and_nothing_is_compared(card):
    found = rates(Sheet("a card", ("P800 OAM",), "a test"))
    assert found["cpu, product, float32"].promised is None and found["cpu, copy on the card"].value > 0


def test_the_size_of_each_memory_is_compared_when_the_tool_shows_it(card):
    found = rates(Sheet("a card", ("P800 OAM",), "a test", memory_gib=96))
    assert [(found[f"memory of card {n}"].value, found[f"memory of card {n}"].promised) for n in (0, 1)] == [(96.0, 96)] * 2


def test_sizes_grow_until_an_action_takes_long_enough(card):
    calls = []
    rates_of(
        Sheet("a card", ("P800 OAM",), "a test"),
        [],
        {},
        ["cpu"],
        lambda a: calls.append(a) or 1e-3 * len(calls) ** 2,
        WITHOUT_PINNED_MEMORY,
    )
    assert len(calls) == 4  # 1, 4, 9 and 16 milliseconds


def test_a_card_that_is_not_listed_is_named_with_the_file(monkeypatch):
    monkeypatch.setattr(ledger, "run_context", RunContext("gpu", 1, {}, {}, (CardFacts(0, "NVIDIA X9"),)))
    sheet, why = data_sheet.sheet_of_cards()
    assert sheet is None and "NVIDIA X9" in why and "data/hardware.yaml" in why and "XPULAB_HARDWARE" in why


# value, the least share that a site says, whether a card of which 100 is promised is accepted
SHARES = [(101, None, True), (106, None, False), (25, None, True), (15, None, False)]
SHARES += [(100, 0.7, True), (71, 0.7, True), (50, 0.7, False), (142, 0.7, True), (150, 0.7, False)]


@pytest.mark.parametrize(("value", "least", "accepted"), SHARES)
def test_a_rate_of_a_card_must_be_between_its_bounds(value, least, accepted):
    rate = Rate("product, float32", "product", value, 100.0, "TFLOP/s", least)
    assert compare.between(rate.value, *rate.bounds).accepted is accepted
