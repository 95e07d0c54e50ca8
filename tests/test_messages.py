"""What people read is in their language: a message is found by its template, or by its text, whatever it went through."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys

import pytest

from xpulab import files, messages
from xpulab.errors import InputError
from xpulab.messages import N_, Message, joined, labelled, shown
from xpulab.records.record import Record, Row, record_in

SPEC = importlib.util.spec_from_file_location("messages_tool", files.ROOT / "tools" / "messages.py")
tool = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tool)

KNOWN = {
    "passed": "通过",
    "{count} cells were left out": "有 {count} 个单元没有运行",
    "after {happened}": "在 {happened} 之后",
    "cause: ": "原因：",
    "; ": "；",
}


@pytest.fixture
def chinese(monkeypatch):
    monkeypatch.setattr(messages, "catalogue", lambda language: KNOWN)
    monkeypatch.setattr(messages, "_language", "zh")


def test_a_message_is_its_english_text():
    made = N_("{count} cells were left out", count=3)
    assert made == "3 cells were left out" and json.dumps(made) == '"3 cells were left out"'
    assert shown(made) == made and N_("passed") == "passed"


def test_it_is_shown_by_its_template_and_its_values_are_shown_too(chinese):
    inner = N_("{count} cells were left out", count=3)
    assert shown(N_("after {happened}", happened=inner)) == "在有 3 个单元没有运行之后"
    assert shown("passed") == "通过" and shown("passed\nunknown") == "通过\nunknown"
    assert labelled("cause: ", "passed") == "原因：通过" and joined(["a", "b"]) == "a；b"


def test_what_the_catalogue_does_not_have_is_shown_in_english(chinese):
    assert shown(N_("{n} new", n=2)) == "2 new" and shown("3 cells were left out") == "3 cells were left out"


def test_a_message_that_is_copied_or_pickled_stays_one(chinese):
    made = N_("{count} cells were left out", count=3)
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert isinstance(other, Message) and shown(other) == "有 3 个单元没有运行"


def test_the_messages_of_a_record_survive_the_notebook(chinese):
    reason = N_("{count} cells were left out", count=3)
    record = Record("a.b", "failed", "means", reason=reason, rows=(Row("c", "failed", 1.0, "2", "rejected", reason),))
    read = record_in(json.loads(json.dumps(record.to_metadata())))
    assert read == record and {shown(read.reason), shown(read.rows[0].reason)} == {"有 3 个单元没有运行"}


def test_the_command_line_chooses_the_language():
    command, environment = [sys.executable, "-m", "xpulab", "run", "nope"], {**os.environ, messages.VARIABLE: "zh"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "没有" in done.stderr
    with pytest.raises(InputError, match="choose en or zh"):
        messages.choose({messages.VARIABLE: "fr"})


def test_the_catalogue_is_read_as_babel_reads_it():
    translated = {str(each.id): str(each.string) for each in tool.read("zh") if each.id and each.string and not each.fuzzy}
    assert dict(messages.catalogue("zh")) == translated


def test_a_text_that_is_no_message_is_refused():
    with pytest.raises(tool.WrongMark, match=r"a\.py line 1"):
        list(tool.in_python('N_(f"{count} cells")', "a.py"))


def test_every_translation_has_the_values_of_its_message():
    assert [text for is_wrong, text in tool.check("zh") if is_wrong] == []
