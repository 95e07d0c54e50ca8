"""Rates beside a data sheet: what is measured, in which unit, and which bounds a rate has."""

from __future__ import annotations

import pytest

from xpulab.chapters.environment import card_rates
from xpulab.chapters.environment.card_rates import Rate, rates_of
from xpulab.chapters.shared.device import Device
from xpulab.checks import compare
from xpulab.checks.ledger import ledger
from xpulab.records.hardware import Sheet
from xpulab.records.record import CardFacts, RunContext

CPU = Device("cpu", 1, "cpu")


@pytest.fixture
def card(monkeypatch):
    """A run on a P800, as its report would show it."""
    facts = (CardFacts(0, "P800 OAM", memory_total_mib=98304),)
    monkeypatch.setattr(ledger, "run_context", RunContext("xpu", 1, {}, {}, facts))


def test_products_are_measured_in_the_types_of_the_sheet(card):
    sheet = Sheet("a card", ("P800 OAM",), "a test", tflops={"float32": 1e-3, "float16": 2e-3})
    (rate,) = rates_of(sheet, ["float32", "float64"], {}, lambda action: 1e-3, CPU)
    assert (rate.case, rate.unit, rate.promised) == ("product, float32", "TFLOP/s", 1e-3)
    assert rate.value == pytest.approx(2 * 256**3 / 1e-3 / 1e12)


def test_the_size_of_the_memory_is_compared_when_the_tool_shows_it(card):
    (rate,) = rates_of(Sheet("a card", ("P800 OAM",), "a test", memory_gib=96), [], {}, lambda action: 1.0, CPU)
    assert (rate.case, rate.value, rate.promised) == ("memory", 96.0, 96)


def test_a_card_that_is_not_listed_is_named_with_the_file():
    reason = card_rates.why_no_sheet("NVIDIA X9")
    assert "NVIDIA X9" in reason and "data/hardware.yaml" in reason


@pytest.mark.parametrize(("value", "accepted"), [(101, True), (106, False), (25, True), (15, False)])
def test_a_rate_of_a_card_must_be_between_its_bounds(value, accepted):
    rate = Rate("product, float32", "product", value, 100.0, "TFLOP/s")
    assert compare.between(rate.value, *rate.bounds).accepted is accepted
