"""Tasks on several nodes at a time: none waits for a node that is silent, and each has one answer.

The engine of these tests starts shell commands on this machine, and says of nodes what a test gives it.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field

import pytest
from ClusterShell.Worker.Exec import ExecWorker

from xpulab.fleet.cluster.engines import PROGRAMS, Look, Slurm
from xpulab.fleet.cluster.submit import Limits, submit
from xpulab.fleet.cluster.task import Ended, Part, Started, format_message, parts_of


def says(*messages):
    """A shell command that prints these messages."""
    return "; ".join(f"echo {shlex.quote(format_message(message))}" for message in messages)


STARTED = says(Started("host"))
DONE = says(Started("host"), *parts_of(b"bundle"), Ended("done", "", 1.0, 6))
FOREVER = "exec sleep 600"


@dataclass
class Local:
    """looks: what is known of a node; of others nothing is. cancelled: the nodes whose commands were ended."""

    looks: dict[str, Look] = field(default_factory=dict)
    cancelled: list[str] = field(default_factory=list)
    name: str = "ssh"
    fanout: int = 8

    def worker(self, node, command, limit, handler):
        return ExecWorker(node, handler=handler, command=f"exec {shlex.join(command)}", stderr=True)

    def look(self, nodes):
        return {node: self.looks.get(node, Look()) for node in nodes}

    def cancel(self, nodes):
        self.cancelled += nodes


@pytest.fixture
def run(tmp_path):
    """Run a script a node: answers by node, the nodes that were cancelled, the lines of progress."""

    def run_all(looks=None, **scripts):
        engine, lines = Local(looks or {}), []
        commands = {node: ["sh", "-c", script] for node, script in scripts.items()}
        answers, _ = submit(commands, tmp_path, Limits(1.0, answers=2.0), engine, lambda *line: lines.append(line))
        return {answer.node: answer for answer in answers}, engine.cancelled, lines

    return run_all


def test_the_bundle_of_a_node_is_stored_under_its_name_and_each_change_is_shown(run, tmp_path):
    answers, _, lines = run(a=DONE, b=DONE)
    assert {answer.outcome for answer in answers.values()} == {"done"}
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes() == b"bundle"
    assert [state for node, state in lines if node == "a"] == ["running on host", "done"]


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("echo 'no such host' >&2; exit 255", "no such host"),
        ("exit 9", "exit code 9"),
        (f"{STARTED}; echo cell 3; exit 9", "stopped answering during the run"),
        (says(Started("host"), *parts_of(b"bun"), Ended("done", "", 1.0, 6)), "bundle did not arrive whole"),
        (says(Started("host"), Part("?"), Ended("done", "", 1.0, 6)), "bundle did not arrive whole"),
    ],
)
def test_a_task_without_a_last_message_or_a_whole_bundle_is_silent_with_the_reason(run, tmp_path, script, named):
    answers, _, _ = run(a=script, b=DONE)
    assert (answers["a"].outcome, answers["b"].outcome) == ("silent", "done") and named in answers["a"].sentence
    assert not list(tmp_path.glob("a.zip*")) and not list(tmp_path.glob("*.part"))
    assert "cell 3" not in script or "cell 3" in (tmp_path / "a.log").read_text()


def test_a_node_that_gives_no_message_is_silent_with_its_state_and_the_others_are_used(run):
    answers, cancelled, _ = run({"a": Look(state="Slurm: down")}, a=FOREVER, b=DONE)
    assert (answers["a"].outcome, answers["b"].outcome, cancelled) == ("silent", "done", ["a"])
    assert "never answered" in answers["a"].sentence and "Slurm: down" in answers["a"].sentence


def test_a_node_that_has_no_turn_is_not_called_silent(run):
    answers, cancelled, lines = run({"a": Look("PENDING (Resources)")}, a=FOREVER, b=DONE)
    assert (answers["a"].outcome, cancelled) == ("waiting", ["a"]) and "PENDING (Resources)" in answers["a"].sentence
    assert ("a", "waits: PENDING (Resources)") in lines


def test_a_command_that_goes_on_after_the_last_message_is_ended_and_the_answer_counts(run):
    answers, cancelled, _ = run(a=f"{DONE}; {FOREVER}")
    assert (answers["a"].outcome, answers["a"].bundle, cancelled) == ("done", "a.zip", ["a"])


@pytest.mark.parametrize(("sinfo", "squeue"), [("echo 'a|idle|none'", "exit 1"), ("exit 1", "true")])
def test_while_slurm_does_not_answer_its_nodes_wait_and_are_not_silent(tmp_path, monkeypatch, sinfo, squeue):
    for name, line in {**dict.fromkeys(PROGRAMS, "exit 1"), "sinfo": sinfo, "squeue": squeue}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Slurm().look(["a"]) == {"a": Look(waits="Slurm does not answer")}
