"""A known message leads to its own remedy only."""

from __future__ import annotations

import pytest

from xpulab.doctor.remedies import match, remedies


@pytest.mark.parametrize("row", [row for row in remedies() if row.example], ids=lambda row: row.id)
def test_example_leads_to_its_own_remedy_only(row):
    assert [found.id for found in match(row.example)] == [row.id]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss: 0.0029, learning_rate: 3e-3, global_step: 120",
        "ModuleNotFoundError: No module named 'torch'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "lora adapters loaded: loss: 0.69, global_step: 1, nanoseconds: 713",
    ],
)
def test_unrelated_text_leads_nowhere(text):
    assert match(text) == []
