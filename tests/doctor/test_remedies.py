"""A known message leads to its own remedy only."""

from __future__ import annotations

import pytest

from xpulab.doctor.remedies import INSTALL, by_id, match, remedies, remedy_on
from xpulab.doctor.versions import framework_row


@pytest.mark.parametrize("row", [row for row in remedies() if row.example], ids=lambda row: row.id)
def test_example_leads_to_its_own_remedy_only(row):
    assert [found.id for found in match(row.example)] == [row.id]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ValueError: substring not found",
        "loss: 0.0029, learning_rate: 3e-3, global_step: 120",
        "ModuleNotFoundError: No module named 'torch'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "lora adapters loaded: loss: 0.69, global_step: 1, nanoseconds: 713",
        "epoch 705 of 714",
    ],
)
def test_unrelated_text_leads_nowhere(text):
    assert match(text) == []


def test_message_is_found_within_a_long_log():
    log = "step 1\n" * 1000 + "[WARN][XPURT] ioctl() fail, (713) Device abnormal due to previous error\n" + "step 2\n" * 9
    assert [row.id for row in match(log)] == ["xpu-abnormal"]


def test_a_remedy_has_the_command_for_the_device():
    row = by_id("xpu-runtime-library")
    assert INSTALL in row.remedy and remedy_on(row, "xpu").startswith(framework_row("xpu").remedy)
