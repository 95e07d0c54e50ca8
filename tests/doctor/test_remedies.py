"""A known message leads to its own remedy only; a malformed file is refused with file and line."""

from __future__ import annotations

import re

import pytest

from tests.conftest import CHINESE, assert_chinese
from xpulab.doctor.remedies import by_id, match, read_remedies, remedies, remedy_on
from xpulab.doctor.versions import framework_row
from xpulab.errors import InputError
from xpulab.messages import shown

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


def test_all_27_symptoms_of_the_field_are_known_and_a_row_is_found_by_its_id():
    assert sum(row.pattern is not None for row in remedies()) >= 27
    assert by_id("kl2").id == "kl2"


MALFORMED = {
    "not YAML": ("- id: [", "line 1: not YAML: "),
    "a tag of its own": ("- id: !secret one\n", "line 1: not YAML: could not determine a constructor"),
    "a control character": ("- id: \x00\n", "line 1: not YAML: special characters are not allowed"),
    "no list": ("id: one\n", "line 1: {'id': 'one'} is not of type 'array'"),
    "no mapping": ("- a text\n", "line 1: 'a text' is not of type 'object'"),
    "a field too many": (ROW + "  colour: red\n", r"line 6: Additional properties are not allowed ('colour' was unexpected)"),
    "a field twice": (ROW + "  cause: d\n", "line 6: not YAML: key 'cause' occurs twice"),
    "a field that is missing": (ROW.replace("  source: s\n", ""), "line 1: 'source' is a required property"),
    "a field of another type": (ROW.replace("true", "perhaps"), "line 5: 'perhaps' is not of type 'boolean'"),
    "a blank field": (ROW.replace("cause: c", "cause: ' '"), "line 2: ' ' does not match"),
    "an id that is no name": (ROW.replace("one", "One row"), "line 1: 'One row' does not match"),
    "an id twice": (ROW + ROW, "line 6: id 'one' occurs twice"),
    "a pattern without example": (ROW + "  pattern: x\n", "line 1: 'example' is a dependency of 'pattern'"),
    "an example without pattern": (ROW + "  example: x\n", "line 1: 'pattern' is a dependency of 'example'"),
    "a pattern that is none": (
        ROW + "  pattern: '('\n  example: x\n",
        "line 6: the pattern is not a regular expression: missing )",
    ),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_file_is_refused_by_line(tmp_path, text, message):
    path = tmp_path / "rows.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_remedies(path)
    assert str(refused.value).startswith(f"{path} {message}")


def test_causes_and_remedies_are_chinese_on_demand_but_for_commands(chinese):
    command = re.compile(r"(?:python|df|unset|ibstat|lspci|cpupower|export|\{install\})")
    for row in remedies():
        assert_chinese(shown(row.cause))
        assert CHINESE.search(shown(row.remedy)) or command.match(row.remedy), row.remedy


def test_a_remedy_with_the_command_of_a_device_is_translated(chinese):
    (row,) = [row for row in remedies() if row.id == "xpu-runtime-library"]
    text = shown(remedy_on(row, "xpu"))
    assert text.startswith(framework_row("xpu").remedy) and text.endswith("LD_LIBRARY_PATH") and "自己编译的 wheel" in text
