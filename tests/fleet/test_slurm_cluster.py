"""The Slurm that the tests use is a real one: three nodes, states, variables of a node, a node that dies."""

from __future__ import annotations

import pytest

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
