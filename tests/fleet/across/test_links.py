"""`xpulab fleet links` on a real Slurm of three nodes: right nodes pass, and the bad node or link is named.

The nodes share one host, so nothing here says anything about a network. Node names do not resolve: their addresses are Slurm's.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from xpulab import files

pytestmark = pytest.mark.cluster

COMMAND = (sys.executable, "-m", "xpulab", "fleet", "links")
WITH_FAULT = f"{sys.executable} {Path(__file__).parent / 'with_fault.py'}"
LIMITS = ("--limit", "60", "--start-limit", "100")
"""A trial takes 2 s; on a busy machine a short limit makes a hang of it. Tests of hangs give a limit of their own."""


def links(cluster, *options, code, **variables):
    """The outcome as JSON of a run of `xpulab fleet links` that ends with this exit code."""
    done = cluster.run(*COMMAND, *LIMITS, "--json", *options, timeout=170, **variables)
    assert done.returncode == code, done.stderr + done.stdout
    found = json.loads(done.stdout)
    jsonschema.validate(found, json.loads(files.data("schema", "links.schema.json").read_text()))
    assert processes_left() == []
    return found


def processes_left():
    """The processes of tasks and ranks that still run."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, timeout=20).stdout.splitlines()
    return [line for line in listed if "xpulab.fleet.across.node" in line]


def named(found):
    return [(each["kind"], each["nodes"]) for each in found["root_causes"]]


def test_nodes_that_work_are_green_and_the_rates_of_all_pairs_are_measured(cluster):
    found = links(cluster, "--nodes", "node[1-3]", "--device", "cpu", "--slow", "0", code=0)
    assert (found["green"], found["nodes"], named(found)) == (True, ["node1", "node2", "node3"], [])
    assert set(found["addresses"].values()) == {"127.0.0.1"}
    assert found["trials"][0]["nodes"] == ["node1", "node2", "node3"]
    assert sorted(each["nodes"] for each in found["rates"]) == [["node1", "node2"], ["node1", "node3"], ["node2", "node3"]]
    assert found["trials"][0]["checks_passed"] >= 3 * 14
    assert found["skipped"]["reduce_scatter SUM float32[1025]"].startswith("gloo has no reduce_scatter (")


def test_a_simulated_card_that_adds_wrongly_makes_its_node_the_bad_one(cluster):
    cluster.give("node2", XPULAB_SIM_FAULTS="flip collective kind=all_reduce")
    found = links(cluster, "--nodes", "node1,node2,node3", "--device", "sim", "--slow", "0", code=1)
    assert named(found) == [("node", ["node2"])]
    assert "on node2: all_reduce SUM float32[1]" in found["trials"][0]["reason"]


def test_a_node_that_is_slow_with_each_other_one_is_named(cluster):
    cluster.give("node1", XPULAB_SIM_FAULTS="delay collective kind=send seconds=0.3")
    found = links(cluster, "--nodes", "node[1-3]", "--device", "sim", "--slow", "0.2", code=1)
    assert named(found) == [("node", ["node1"])]
    assert "each of the 2 nodes" in found["root_causes"][0]["evidence"]


def test_a_link_is_named_when_both_of_its_ends_work_with_the_third_node(cluster):
    options = ("--nodes", "3", "--device", "cpu", "--slow", "0", "--python", WITH_FAULT, "--seed", "3")
    found = links(cluster, *options, code=1, FAULT="corrupt node1 node3")
    assert named(found) == [("link", ["node1", "node3"])]
    assert "link node1 - node3 is wrong" in found["root_causes"][0]["text"]


def test_a_rank_that_hangs_is_found_at_the_time_limit(cluster):
    options = ("--nodes", "node[1-3]", "--device", "cpu", "--slow", "0", "--python", WITH_FAULT, "--limit", "5")
    found = links(cluster, *options, code=1, FAULT="hang node3")
    assert named(found) == [("node", ["node3"])]
    assert "all_reduce SUM float32[65537]" in found["trials"][0]["reason"]  # at the time limit, or at that of gloo


def test_a_rank_that_is_killed_makes_the_search_short(cluster):
    options = ("--nodes", "node[1-3]", "--device", "cpu", "--slow", "0", "--python", WITH_FAULT)
    found = links(cluster, *options, code=1, FAULT="die node2")
    assert named(found) == [("node", ["node2"])]
    assert found["trials"][0]["suspect"] == "node2"
    assert "(SIGKILL), in: all_reduce SUM" in found["trials"][0]["reason"]


def test_a_node_behind_a_firewall_says_which_address_it_cannot_reach(cluster):
    options = ("--nodes", "node[1-3]", "--device", "cpu", "--slow", "0", "--python", WITH_FAULT, "--limit", "5")
    found = links(cluster, *options, code=1, FAULT="firewall node2")
    assert named(found) == [("node", ["node2"])]
    reasons = " ".join(rank["reason"] for trial in found["trials"] for rank in trial["ranks_not_passed"])
    assert "cannot connect to 127.0.0.1:" in reasons and "firewall" in reasons


def test_nodes_whose_tasks_do_not_work_are_named_and_the_others_are_tried(cluster):
    options = ("--nodes", "node[1-3]", "--device", "cpu", "--slow", "0", "--python", WITH_FAULT)
    found = links(cluster, *options, code=1, FAULT="end node2; import node3")
    assert named(found) == [("node", ["node3"]), ("node", ["node2"])]
    assert "import of paddle halted" in found["root_causes"][0]["reason"]
    assert "its task has ended: Killed" in found["root_causes"][1]["reason"]
    assert [trial["nodes"] for trial in found["trials"] if trial["passed"]] == [["node1"]]


def test_in_a_job_its_nodes_are_taken_with_a_task_for_each_card(cluster):
    inside = ("salloc", "--nodes=2", "--ntasks-per-node=2", "--quiet", *COMMAND, "--device", "sim", "--cards", "2")
    done = cluster.run(*inside, *LIMITS, "--slow", "0", "--trials", "9", "--engine-options", "--quiet", timeout=100)
    assert done.returncode == 0, done.stderr
    assert "GREEN  2 nodes, 2 cards each, sim" in done.stdout and "says nothing about a card" in done.stdout


def test_an_interrupt_ends_all_processes(cluster):
    command = [*COMMAND, *LIMITS, "--nodes", "2", "--device", "cpu"]
    with subprocess.Popen(command, env=dict(cluster.environment), stderr=subprocess.PIPE, text=True) as running:
        assert "2 nodes have started" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        _, messages = running.communicate(timeout=60)
    assert (running.returncode, "xpulab: interrupted" in messages, processes_left()) == (130, True, [])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no nodes: give --nodes LIST or --nodes NUMBER"),
        (("--nodes", "node9"), "no task has started"),
        (("--nodes", "node[1-"), "no task has started"),
        (("--nodes", "0"), "at least 1"),
        (("--nodes", "2", "--engine-options", "'"), "--engine-options ': not what a shell reads"),
        (("--nodes", "2", "--python", "'"), "--python ': not what a shell reads"),
        (("--nodes", "2", "--python", "'/my env/python'"), "/my env/python"),
    ],
)
def test_what_cannot_start_is_one_message_and_exit_code_2(cluster, options, message):
    done = cluster.run(*COMMAND, "--device", "cpu", *options, timeout=60)
    assert (done.returncode, message in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
