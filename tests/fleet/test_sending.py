"""What is sent is what this user's machine holds: its evidence is left out of the bundle of another machine's run."""

from __future__ import annotations

import json

import pytest

from xpulab.fleet import bundle, sending
from xpulab.records.node import node_name


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(**result): the folder of a run with this result.json, on a machine whose evidence is one file."""
    monkeypatch.setattr(sending.evidence, "evidence", lambda environ, device: iter([("doctor.json", json.dumps(device))]))
    monkeypatch.setattr(sending.evidence, "in_short", lambda environ, device: iter([("doctor.json", '"in short"')]))

    def write(text):
        (tmp_path / "result.json").write_text(text)
        return tmp_path

    return write


def test_the_device_of_the_run_is_diagnosed(run):
    folder = run(json.dumps({"node": node_name(), "device": "xpu"}))
    assert sending.collect(folder, bundle.EVERYTHING).contents["machine/doctor.json"] == b'"xpu"\n'
    assert sending.collect(folder, bundle.SUMMARY).contents["machine/doctor.json"] == b'"in short"\n'


def test_the_run_of_another_machine_gets_nothing_of_this_one(run):
    collected = sending.collect(run('{"node": "another"}'), bundle.EVERYTHING)
    assert list(collected.contents) == ["run/result.json"]
    assert collected.bundle.notes == (sending.ELSEWHERE.format(run="another", here=node_name()),)


@pytest.mark.parametrize("text", ['{"node": "x', "[]"])
def test_a_result_that_cannot_be_read_is_sent_with_a_note(run, text):
    collected = sending.collect(run(text), bundle.EVERYTHING)
    assert "machine/doctor.json" in collected.contents and "cannot be read" in collected.bundle.notes[0]


def test_a_user_who_has_only_a_number_is_no_error(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(sending.pwd, "getpwuid", unknown)
    assert sending.redactor().redact("hf_" + "a" * 30)[0] == "<removed: token>"
    assert {"lora.merge", "passed"} <= sending.suite_words()


def test_the_list_names_files_removals_and_what_is_left_out(run):
    folder = run('{"text": "/home/li/x /home/li/y"}')
    (folder / "weights.bin").write_bytes(b"")
    shown = sending.format_list(sending.collect(folder, bundle.EVERYTHING).bundle)
    assert "run/result.json  (removed: user 2 times)" in shown
    assert "left out  weights.bin: no report and no notebook" in shown and "removed: user 2 times" in shown
