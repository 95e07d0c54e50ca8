"""`xpulab fleet run --engine ssh` through a real sshd."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import pytest

from xpulab import files

pytestmark = pytest.mark.cluster


@pytest.fixture
def command(ssh_config, tmp_path):
    """A fleet run over ssh, whose tasks use the folder "scratch"."""
    (tmp_path / "scratch").mkdir()
    variables = [f"PYTHONPATH={files.ROOT}", f"TMPDIR={tmp_path / 'scratch'}", "OMP_NUM_THREADS=1"]
    on_nodes = shlex.join(["env", *variables, sys.executable, "-m", "xpulab"])
    options = ["--engine", "ssh", "--engine-options", f"-F {ssh_config}", "--xpulab", on_nodes, "--out", str(tmp_path / "out")]
    run = [sys.executable, "-m", "xpulab", "fleet", "run", "09_collectives", "--device", "sim", "--cards", "2"]
    return [*run, *options]


@pytest.fixture
def fleet(command, tmp_path):
    """A function that runs it: exit code, output, by node status and sentence."""

    def run(*arguments):
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)
        nodes = json.loads((tmp_path / "out" / "fleet.json").read_text())["nodes"]
        by_node = {node["node"]: (node["status"], node["sentence"]) for node in nodes}
        return done.returncode, done.stdout + done.stderr, by_node

    return run


def test_bundles_come_back_and_a_node_that_refuses_the_connection_is_silent(fleet, tmp_path):
    code, text, nodes = fleet("--nodes", "node[1-2,4]", "--level", "smoke")
    assert (code, {node: status for node, (status, _) in nodes.items()}) == (
        1,
        {"node1": "green", "node2": "green", "node4": "silent"},
    ), text
    assert "Connection refused" in nodes["node4"][1]
    assert sorted(path.name for path in (tmp_path / "out").glob("*.zip")) == ["node1.zip", "node2.zip"]


def test_a_run_that_does_not_end_is_stopped_at_its_time_limit_and_named(fleet, tmp_path):
    code, text, nodes = fleet("--nodes", "node3", "--level", "standard", "--timeout", "0.1")
    assert code == 1 and nodes["node3"][0] == "red", text
    assert "within 6 s" in nodes["node3"][1] and list((tmp_path / "scratch").iterdir()) == []


def test_ctrl_c_ends_the_runs_on_the_nodes(command, ended, tmp_path):
    code, text, _ = ended([*command, "--nodes", "node1", "--level", "standard"], os.environ, signal.SIGINT)
    assert code == 130 and "1 unknown" in text
    until = time.monotonic() + 60
    while list((tmp_path / "scratch").iterdir()):
        assert time.monotonic() < until, "the run on the node goes on"
        time.sleep(0.2)
