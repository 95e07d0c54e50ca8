"""`xpulab fleet links`: which smallest groups of nodes do not work together, on pretended nodes and on a real Slurm."""

from __future__ import annotations

import shlex
import sys

import numpy as np
import pytest

from xpulab.child import python_module
from xpulab.fleet.cluster import exchange
from xpulab.fleet.cluster.links import smallest_red

COMMAND = [sys.executable, "-m", "xpulab", "fleet", "links"]
NODES = tuple(f"n{number}" for number in range(1000))


def pretended(bad):
    """Nodes of which a group is red when it holds one of these sets of nodes; and the groups that were tried."""
    rounds = []

    def tries(groups):
        rounds.append(groups)
        assert len({node for group in groups for node in group}) == sum(map(len, groups))
        return {group: "why" if any(each <= set(group) for each in bad) else "" for group in groups}

    return tries, rounds


@pytest.mark.parametrize(
    ("nodes", "bad", "most_rounds"),
    [
        (NODES, [], 1),
        (NODES, [{"n700"}], 11),
        (NODES, [{"n3"}, {"n700"}], 21),
        (NODES, [{"n3", "n700"}], 22),
        (NODES, [{"n3", "n4"}], 22),
        (NODES[:3], [{"n0", "n2"}], 4),
        (NODES[:3], [{"n1", "n2"}], 4),
        (NODES[:2], [{"n0", "n1"}], 2),
        (NODES[:4], [set(NODES[:4])], 4),
    ],
)
def test_the_smallest_red_groups_are_found_in_few_rounds(nodes, bad, most_rounds):
    tries, rounds = pretended(bad)
    assert [set(group) for group, _ in smallest_red(nodes, tries)] == bad
    assert len(rounds) <= most_rounds


def test_every_bad_link_of_seven_nodes_is_found():
    nodes = NODES[:7]
    for number, one in enumerate(nodes):
        for other in nodes[:number]:
            tries, _ = pretended([{one, other}])
            assert [set(group) for group, _ in smallest_red(nodes, tries)] == [{one, other}]


def test_a_wrong_value_or_sum_is_named_with_its_sender():
    gathered = [exchange.known(sender) for sender in range(3)]
    total = np.sum(gathered, axis=0)
    assert exchange.wrong(gathered, total) == ""
    assert exchange.wrong(gathered, total + (np.arange(exchange.ELEMENTS) == 5)).startswith("1 of ")
    assert "rank 1" in exchange.wrong([gathered[0], gathered[0], gathered[2]], total)


@pytest.mark.cluster
class TestSlurm:
    def test_nodes_that_work_together_are_green(self, cluster):
        done = cluster.run("salloc", "--nodes=2", *COMMAND, "--cards", "2", timeout=300)
        assert done.returncode == 0 and "green  node[1-2]" in done.stdout, done.stdout + done.stderr

    def test_two_nodes_that_do_not_work_together_are_named(self, cluster, tmp_path):
        """On node3 the task of a step that node1 is in ends at once."""
        xpulab = tmp_path / "xpulab"
        xpulab.write_text(
            "#!/bin/sh\n"
            'if [ $SLURMD_NODENAME = node3 ] && scontrol show hostnames "$SLURM_STEP_NODELIST" | grep -q node1; then\n'
            "    echo 'xpulab-links: node3 lost the others'; exit 1\nfi\n"
            f'exec {shlex.join(python_module("xpulab"))} "$@"\n'
        )
        xpulab.chmod(0o755)
        done = cluster.run(
            "salloc", "--nodes=3", *COMMAND, "--cards", "1", "--limit", "100", "--xpulab", str(xpulab), timeout=500
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "RED: node1,node3: node3 lost the others" in done.stdout.splitlines()

    def test_outside_of_a_job_it_is_refused(self, cluster):
        done = cluster.run(*COMMAND, "--nodes", "node1", "--engine-options", "--mem=0")
        assert done.returncode == 2 and "salloc" in done.stderr
