"""`xpulab fleet run --engine ssh` through a real sshd: no scheduler, no shared folder."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time

import pytest

from xpulab import files

pytestmark = pytest.mark.cluster

COMMAND = [
    sys.executable,
    "-m",
    "xpulab",
    "fleet",
    "run",
    "09_collectives",
    "--engine",
    "ssh",
    "--device",
    "sim",
    "--cards",
    "2",
]


@pytest.fixture
def fleet(sshd, tmp_path):
    """A fleet run over ssh: the command, and a function that runs it: exit code, output, status by node, sentence by node."""
    on_nodes = shlex.join(["env", f"PYTHONPATH={files.ROOT}", "OMP_NUM_THREADS=1", sys.executable, "-m", "xpulab"])
    options = ["--engine-options", f"-F {sshd.config}", "--xpulab", on_nodes, "--out", str(tmp_path / "out")]

    def run(*arguments):
        done = subprocess.run([*COMMAND, *options, *arguments], capture_output=True, text=True, timeout=200)
        record = tmp_path / "out" / "fleet.json"
        nodes = json.loads(record.read_text())["nodes"] if record.exists() else []
        by_node = {each["answer"]["node"]: (each["status"], each["sentence"]) for each in nodes}
        return done.returncode, done.stdout + done.stderr, by_node

    run.command = [*COMMAND, *options]
    return run


def test_bundles_come_back_and_a_node_that_refuses_the_connection_is_silent(fleet, tmp_path):
    code, text, nodes = fleet("--nodes", "node[1-2,4]", "--timeout", "4")
    assert code == 1 and {node: status for node, (status, _) in nodes.items()} == {
        "node1": "green",
        "node2": "green",
        "node4": "silent",
    }, text
    assert "(2 attempts)" in nodes["node4"][1] and "Connection refused" in nodes["node4"][1]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.zip")) == ["node1.zip", "node2.zip"]


def test_a_lost_task_is_started_again_and_a_red_one_is_not(fleet, tmp_path):
    """The command of the nodes fails without a message when it is called for the first time."""
    lost_once = tmp_path / "lost-once"
    lost_once.write_text(f'#!/bin/sh\n[ -e "{tmp_path}/called" ] || {{ touch "{tmp_path}/called"; exit 9; }}\nexec "$@"\n')
    lost_once.chmod(0o755)
    position = fleet.command.index("--xpulab") + 1
    on_nodes = f"{lost_once} {fleet.command[position]}"
    code, text, nodes = fleet("--nodes", "node1", "--retries", "1", "--xpulab", on_nodes, "--timeout", "4")
    assert code == 0 and nodes["node1"][0] == "green" and "submitted again, attempt 2" in text, text


def test_a_run_that_does_not_end_is_stopped_at_its_deadline_and_named(fleet):
    code, text, nodes = fleet("--nodes", "node3", "--level", "standard", "--timeout", "0.1")
    assert code == 1 and nodes["node3"][0] == "red", text
    assert nodes["node3"][1].startswith("the run did not end within 6 s")


def test_what_ssh_does_not_have_is_refused(fleet, tmp_path):
    for arguments, reason in [
        (("--nodes", "3"), "ssh does not know which nodes there are"),
        (("--nodes", "node1", "--drain"), "--drain needs --engine slurm"),
        (("--nodes", "node1", "--partition", "all"), "only Slurm has partitions"),
        (("--nodes", "node1", "--engine-options", "'"), "not what a shell reads"),
        (("--nodes", "node1", "--check", "no.such"), "no.such"),
    ]:
        code, text, _ = fleet(*arguments)
        assert code == 2 and reason in text and not (tmp_path / "out").exists(), text


def test_ctrl_c_ends_the_runs_on_the_nodes(fleet, interrupted, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [word.replace("env PYTHON", f"env XPULAB_SCRATCH={scratch} PYTHON") for word in fleet.command]
    command += ["--nodes", "node1", "--level", "standard"]
    code, text, _ = interrupted(command, os.environ)
    assert code == 130 and "1 unknown" in text
    until = time.monotonic() + 60
    while list(scratch.iterdir()):
        assert time.monotonic() < until, "the run on the node goes on"
        time.sleep(0.2)
