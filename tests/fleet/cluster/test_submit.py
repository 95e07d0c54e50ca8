"""Tasks on several nodes at a time: lost ones are started again, and none waits for a node that is silent.

The engine of these tests starts shell commands on this machine, and says of nodes what a test gives it.
"""

from __future__ import annotations

import io
import shlex
from dataclasses import dataclass, field

import pytest
from ClusterShell.Worker.Exec import ExecWorker
from rich.console import Console

from xpulab.fleet.cluster.engine import Engine, Look
from xpulab.fleet.cluster.messages import Ended, Started, format_message, parts_of
from xpulab.fleet.cluster.progress import progress_on
from xpulab.fleet.cluster.submit import Deadlines, submit

STARTED = f"echo {shlex.quote(format_message(Started('host')))}"
DONE = "; ".join(
    [STARTED, *(f"echo {shlex.quote(format_message(each))}" for each in [*parts_of(b"bundle"), Ended("done", "", 0, 1.0)])]
)
FOREVER = "exec sleep 600"


@dataclass
class Local(Engine):
    """looks: what is known of a node; of others that nothing is wrong. cancelled: the nodes whose commands were ended."""

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
    """Run a script a node: answers by node, what a plain console shows, the engine."""

    def run_all(looks=None, terminal=False, retries=1, **scripts):
        engine, shown = Local(looks or {}), io.StringIO()
        deadlines = Deadlines(run=600.0, wait=1.0, answers=2.0, gone=0.0, clears=2.0, retries=retries)
        commands = {node: ["sh", "-c", script] for node, script in scripts.items()}
        console = Console(file=shown, force_terminal=terminal, width=150)
        answers = submit(commands, tmp_path, deadlines, engine, progress_on(console, list(scripts))).answers
        return {answer.node: answer for answer in answers}, shown.getvalue(), engine

    return run_all


def test_the_bundle_of_a_node_is_stored_under_its_name(run, tmp_path):
    answers, shown, _ = run(a=DONE, b=DONE)
    assert {answer.outcome for answer in answers.values()} == {"done"}
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes() == b"bundle"
    assert "a: running on host" in shown and "(0 to go)" in shown


def test_a_task_that_was_lost_is_started_again_once(run, tmp_path):
    again = (
        f"[ -e {tmp_path}/called ] && {{ {DONE}; }} || {{ touch {tmp_path}/called; echo 'connection closed' >&2; exit 255; }}"
    )
    answers, shown, _ = run(a=again, b="echo 'no such host' >&2; exit 255")
    assert (answers["a"].outcome, answers["a"].attempts) == ("done", 2) and "a: lost: connection closed" in shown
    assert (answers["b"].outcome, answers["b"].attempts) == ("silent", 2)
    assert answers["b"].sentence.endswith("(2 attempts): no such host")


def test_a_task_that_ends_without_a_message_is_lost_and_its_output_kept(run, tmp_path):
    answers, _, _ = run(a=f"{STARTED}; echo cell 3; exit 9", retries=0)
    assert answers["a"].outcome == "lost" and "exit code 9" in answers["a"].sentence
    assert "cell 3" in (tmp_path / "a.log").read_text()


def test_a_node_that_gives_no_message_is_silent_and_the_others_are_used(run):
    answers, _, engine = run(a=FOREVER, b=DONE)
    assert (answers["a"].outcome, answers["b"].outcome) == ("silent", "done") and engine.cancelled == ["a"]


def test_a_node_that_is_gone_before_its_task_starts_is_silent_with_what_the_engine_says(run):
    answers, _, engine = run({"a": Look(gone="down", over=False, state="Slurm: down")}, a=FOREVER, b=DONE)
    assert answers["a"].sentence == "it never answered; Slurm: down" and engine.cancelled == ["a"]


def test_a_node_that_has_no_turn_is_not_called_silent(run):
    answers, _, engine = run({"a": Look(waits="PENDING (Resources)", over=False, state="Slurm: allocated")}, a=FOREVER, b=DONE)
    assert answers["a"].outcome == "waiting" and "PENDING (Resources)" in answers["a"].sentence
    assert engine.cancelled == ["a"]


def test_while_the_engine_knows_nothing_of_a_node_it_is_not_called_silent(run):
    answers, _, _ = run({"a": Look(waits="Slurm does not answer", over=False)}, a=FOREVER, b=DONE)
    assert answers["a"].outcome == "waiting"
    assert answers["a"].sentence.endswith("Slurm does not answer")


def test_a_node_that_is_gone_after_its_task_is_named_with_its_bundle(run):
    answers, _, _ = run({"a": Look(gone="down", over=False)}, a=DONE)
    assert (answers["a"].outcome, answers["a"].bundle, answers["a"].gone) == ("done", "a.zip", "down")


def test_a_terminal_shows_a_table_of_the_nodes_that_have_not_answered(run):
    _, shown, _ = run(terminal=True, a=f"{DONE}; echo cell 3", b="exit 1")
    assert "answered: 1 done, 1 silent" in shown and "b: silent: it never answered" in shown
