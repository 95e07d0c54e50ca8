"""The Slurm that the tests use is a real one: three nodes, states, variables of a node, a node that dies."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xpulab.files import ROOT

pytestmark = pytest.mark.integration


def test_a_task_runs_on_each_node_with_its_own_variables(cluster):
    cluster.give("node2", COLOUR="red")
    done = cluster.run("srun", "-N3", "--ntasks-per-node=1", "sh", "-c", "echo $SLURMD_NODENAME $COLOUR")
    assert sorted(done.stdout.split("\n")) == ["", "node1", "node2 red", "node3"], done.stderr


def test_a_drained_node_says_why_and_can_be_resumed(cluster):
    cluster.run("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=too slow")
    assert (cluster.state("node1"), cluster.reason("node1")) == ("drained", "too slow")
    cluster.restore()
    assert cluster.state("node1") == "idle"


def test_a_node_whose_daemon_was_killed_comes_back(cluster):
    cluster.stop_slurmd("node3")
    assert not cluster.is_slurmd_running("node3")
    cluster.restore()
    done = cluster.run("srun", "--nodelist=node3", "-N1", "sh", "-c", "echo $SLURMD_NODENAME")
    assert done.stdout.strip() == "node3", done.stderr


def processes_of(folder):
    """The names of the processes that have the folder in their command line or environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append((process / "comm").read_text().strip())
    return sorted(found)


def test_a_pytest_that_is_killed_leaves_no_daemon_no_job_and_no_folder(cluster):
    """The fixture of this test says whether Slurm is here; the killed pytest has a cluster of its own."""
    held = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(Path(__file__).with_name("held_cluster.py"))]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    with subprocess.Popen(held, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        try:
            shown = next((line for line in tests.stdout if line.startswith("held in ")), "")
            assert shown, "no cluster was held"
            folder = Path(shown.removeprefix("held in ").strip())
            before = processes_of(folder)
        finally:
            tests.kill()
    assert {"munged", "slurmctld", "slurmd", "slurmstepd", "sleep"} <= set(before), before
    until = time.monotonic() + 60
    while (after := processes_of(folder)) or folder.exists():
        assert time.monotonic() < until, f"{after} and {folder} are still there"
        time.sleep(0.2)
