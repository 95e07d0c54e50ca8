"""What a task on a node does and says: a bundle that arrives whole, or one sentence with the reason."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import pytest

from xpulab.fleet.cluster.task import Ended, Part, Started, format_message, parse_message, run_task

WRITES_A_RESULT = 'mkdir -p "$out"; echo "{\\"green\\": true}" > "$out/result.json"; echo green'
STUB = """#!/bin/sh
case $1 in
    run) out=$3; {run} ;;
    bundle) {bundle} ;;
esac
"""
BUNDLES = 'cd "$2" && echo bundle > "$4"'


@pytest.fixture
def do(tmp_path, monkeypatch):
    """Run a task whose xpulab is a shell script: its last message, the bundle that it sent, all lines."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))

    def run(script, limit=60.0, bundle=BUNDLES):
        (tmp_path / "stub").write_text(STUB.format(run=script, bundle=bundle))
        lines = []
        ended = run_task("node7", ("sh", str(tmp_path / "stub")), (), limit, lines.append)
        messages = [message for message in map(parse_message, lines) if message]
        assert isinstance(messages[0], Started) and messages[-1] == ended and list((tmp_path / "scratch").iterdir()) == []
        sent = b"".join(base64.b64decode(message.text) for message in messages if isinstance(message, Part))
        assert len(sent) == ended.size
        return ended, sent, lines

    return run


@pytest.mark.parametrize("code", [0, 1], ids=["green", "red"])
def test_a_run_ends_as_a_bundle_that_is_sent_and_leaves_nothing_on_the_node(do, code):
    ended, sent, lines = do(f"{WRITES_A_RESULT}; exit {code}")
    assert (ended.outcome, ended.sentence, sent) == ("done", "", b"bundle\n") and "green" in lines


def test_a_run_that_does_not_end_is_stopped_its_last_line_named_and_what_it_reports_sent(do):
    ended, sent, _ = do(f"trap '{WRITES_A_RESULT}; exit 130' INT; echo cell 7; while :; do sleep 0.1; done", limit=1.0)
    assert ended.outcome == "late" and "within 1 s" in ended.sentence and sent == b"bundle\n"


def test_a_run_that_leaves_no_result_is_named_with_its_last_line(do):
    ended, sent, _ = do("echo 'xpulab: xpu: no card' >&2; exit 2")
    assert (ended.outcome, sent) == ("failed", b"") and ended.sentence.endswith("xpulab: xpu: no card")


def test_a_run_that_cannot_be_bundled_is_named_with_the_reason(do):
    ended, sent, _ = do(WRITES_A_RESULT, bundle="echo 'no room' >&2; exit 1")
    assert (ended.outcome, sent) == ("failed", b"") and ended.sentence.endswith("no room")


def test_without_a_folder_for_the_run_the_disk_is_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    ended = run_task("node7", ("true",), (), 5.0, lambda line: None)
    assert ended.outcome == "disk" and "none" in ended.sentence


@pytest.mark.parametrize("cut", [0, 3, 40])
def test_a_line_is_a_message_only_when_it_is_whole(cut):
    line = format_message(Ended("late", "why", 3.5, 0))
    assert parse_message(line[: len(line) - cut]) == (None if cut else Ended("late", "why", 3.5, 0))
    assert parse_message("[ 3.8 s] started") is None and parse_message('xpulab-task {"message": "Ended"}') is None


@pytest.mark.integration
def test_the_command_on_the_node_ends_with_its_input_and_its_run_too(tmp_path):
    """As when an ssh connection ends: the run has no time limit that matters."""
    command = [sys.executable, "-m", "xpulab", "fleet", "task", "--node", "node7", "--limit", "600"]
    command += ["--", "09_collectives", "--level", "standard", "--device", "cpu", "--cards", "2"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ) as process:
        try:
            assert isinstance(parse_message(process.stdout.readline().rstrip()), Started)
            process.stdout.readline()
            process.stdin.close()
            assert process.wait(60) == 130
        finally:
            process.kill()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
def test_the_command_on_the_node_sends_the_bundle_of_a_real_run(tmp_path):
    command = [sys.executable, "-m", "xpulab", "fleet", "task", "--node", "node7", "--"]
    command += ["00_environment", "--level", "smoke", "--check", "install.one-framework", "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        messages = [message for line in process.stdout if (message := parse_message(line.rstrip()))]
    (tmp_path / "got.zip").write_bytes(b"".join(base64.b64decode(m.text) for m in messages if isinstance(m, Part)))
    assert messages[-1].outcome == "done", messages[-1]
    with zipfile.ZipFile(tmp_path / "got.zip") as made:
        assert json.loads(made.read("run/result.json"))["outcome"] == "partial"
