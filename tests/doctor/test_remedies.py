"""A message that is known leads to its remedy and to no other; a malformed file is refused by line."""

from __future__ import annotations

import pytest

from xpulab.doctor.remedies import by_id, match, read_remedies, remedies
from xpulab.errors import InputError

ROW = "- id: one\n  cause: c\n  remedy: r\n  source: s\n  measured: true\n"


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


def test_all_27_symptoms_of_the_field_are_known():
    assert sum(row.pattern is not None for row in remedies()) >= 27


def test_row_is_found_by_its_id():
    assert by_id("kl2").cause == "Paddle 3 no longer supports K100, K200, R200 and R300"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- id: [", r"rows\.yaml line 1: not YAML"),
        ("- id: !secret one\n", r"rows\.yaml line 1: not YAML"),
        ("- id: \x00\n", r"rows\.yaml: not YAML"),
        ("id: one\n", r"rows\.yaml line 1: the file must be a list"),
        ("- just words\n", r"rows\.yaml line 1: an entry must be 'key: value' lines"),
        (ROW + "  colour: red\n", r"rows\.yaml line 6: unknown key 'colour'"),
        (ROW + "  cause: d\n", r"rows\.yaml line 6: key 'cause' for the second time"),
        (ROW.replace("  source: s\n", ""), r"rows\.yaml line 1: no key 'source'"),
        (ROW.replace("true", "perhaps"), r"rows\.yaml line 5: 'measured' must be a bool, not 'perhaps'"),
        (ROW + ROW, r"rows\.yaml line 6: id 'one' for the second time"),
        (ROW + "  pattern: x\n", r"rows\.yaml line 1: pattern and example belong together"),
        (ROW + "  pattern: '('\n  example: x\n", r"rows\.yaml line 1: pattern is not a regular expression"),
    ],
)
def test_malformed_file_is_refused_by_line(tmp_path, text, complaint):
    path = tmp_path / "rows.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        read_remedies(path)
