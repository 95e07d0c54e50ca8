"""`xpulab fleet run` on a real Slurm: which nodes it takes, which faults it names, what it drains, what Ctrl-C leaves."""

from __future__ import annotations

import json
import sys
import time

import faulty_fleet
import pytest
from typer.testing import CliRunner

from xpulab import cli

pytestmark = pytest.mark.cluster

FAULTS = faulty_fleet.FAULTS
COMMAND = [sys.executable, "-m", "xpulab", "fleet"]
QUICKLY_RED = ("00_environment", "--level", "smoke", "--check", "install.one-framework")


@pytest.fixture
def refused(cluster, tmp_path, monkeypatch):
    """A function: what a fleet run that cannot start prints."""
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])

    def run(*arguments):
        done = CliRunner().invoke(cli.app, ["fleet", "run", *arguments, "--out", str(tmp_path / "refused")])
        assert done.exit_code == 2 and not (tmp_path / "refused").exists(), done.output
        return done.output

    return run


@pytest.mark.parametrize("name", [name for name in FAULTS if name != "wrong sum"])
def test_the_node_with_the_fault_is_named_and_the_others_are_green(cluster, tmp_path, name):
    fault = FAULTS[name]
    if name == "full disk" and not faulty_fleet.can_mount(tmp_path):
        pytest.skip("mounting a small file system needs root")
    with fault.inject(cluster, "node2"):
        code, text, record = faulty_fleet.fleet_run(cluster, tmp_path / "out", *fault.run)
    assert record, text
    assert faulty_fleet.wrong(fault, "node2", code, record) == []
    again = cluster.run(*COMMAND, "show", str(tmp_path / "out"))
    assert again.returncode == 1 and "node2" in again.stdout
    assert (tmp_path / "out" / "compare.json").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--nodes", "node[1,9]"], "has no node node9; it has node[1-3]"),
        (["--nodes", "1", "--partition", "gpu"], "Slurm has none of this name; it has all"),
        (["--nodes", "4"], "3 of the 3 nodes can be used"),
        (["--nodes", "node[1"], "no set of nodes"),
        (["--nodes", "1", "--level", "soak"], "not a level of a fleet run"),
        (["--nodes", "1", "--engine", "kubernetes"], "no such engine"),
        (["--nodes", "1", "99_none"], "99_none"),
    ],
)
def test_what_cannot_be_started_is_refused(refused, arguments, reason):
    assert reason in refused(*arguments)


def test_a_machine_without_slurm_is_refused(refused, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert "srun, sinfo, squeue, scancel, scontrol not on PATH" in refused("--nodes", "1")


def test_drained_nodes_are_left_out_and_named(cluster, refused, tmp_path):
    cluster.run("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=too slow")
    arguments = ["--nodes", "2", "--partition", "all", "--xpulab", "no-such-command", "--retries", "0", "--wait", "1"]
    done = cluster.run(*COMMAND, "run", *QUICKLY_RED, *arguments, "--out", str(tmp_path / "out"), timeout=120)
    record = json.loads((tmp_path / "out" / "fleet.json").read_text())
    assert done.returncode == 1 and "left out: node1: Slurm: drained, too slow" in done.stdout
    assert {each["answer"]["node"]: each["status"] for each in record["nodes"]} == {
        "node1": "left out",
        "node2": "silent",
        "node3": "silent",
    }
    assert "none of them can be used now" in refused("--nodes", "node1")


def test_a_wrong_sum_is_named_and_with_drain_the_node_is_out_of_service_with_the_reason(cluster, tmp_path):
    """The fleet run is in a job itself: its tasks are other jobs all the same."""
    fault = FAULTS["wrong sum"]
    with fault.inject(cluster, "node3"):
        code, text, record = faulty_fleet.fleet_run(cluster, tmp_path / "out", *fault.run, "--drain", SLURM_JOB_ID="4711")
    assert faulty_fleet.wrong(fault, "node3", code, record) == [] and "drained node3" in text
    assert cluster.state("node3") in ("drained", "draining") and "drain" not in cluster.state("node1")
    assert cluster.reason("node3").startswith("[node_problem] xpulab collectives.smoke-values")


def test_a_node_that_lost_its_card_is_red_and_names_it(cluster, tmp_path):
    """All nodes are this machine; node2 has a bus with a Kunlun card, and no /dev/xpu0."""
    card = tmp_path / "root/sys/bus/pci/devices/0000:03:00.0"
    card.mkdir(parents=True)
    for name, value in (("vendor", "1d22"), ("device", "3688"), ("class", "120000")):
        (card / name).write_text(f"0x{value}\n")
    (tmp_path / "empty").mkdir()
    cluster.give("node1", XPULAB_SYSTEM_ROOT=str(tmp_path / "empty"))
    cluster.give("node2", XPULAB_SYSTEM_ROOT=str(tmp_path / "root"))
    arguments = ["--nodes", "node[1-2]", "--device", "auto", "--timeout", "4", "--wait", "1", "--out", str(tmp_path / "out")]
    done = cluster.run(*COMMAND, "run", "00_environment", "--level", "smoke", *arguments, timeout=300)
    record = json.loads((tmp_path / "out" / "fleet.json").read_text())
    nodes = {each["answer"]["node"]: each for each in record["nodes"]}
    assert (done.returncode, nodes["node1"]["status"], nodes["node2"]["status"]) == (1, "green", "red"), done.stdout
    assert "meant to have an XPU" in nodes["node2"]["sentence"]


def test_ctrl_c_cancels_the_jobs_and_reports_what_came_in(cluster, interrupted, tmp_path):
    command = [*COMMAND, "run", "09_collectives", "--nodes", "3", "--level", "standard", "--device", "sim", "--cards", "2"]
    command += ["--engine-options", "--comment=lab", "--out", str(tmp_path / "out")]
    code, text, errors = interrupted(command, cluster.environment)
    assert code == 130 and "3 unknown" in text and "interrupted" in errors
    until = time.monotonic() + 60
    while cluster.run("squeue", "--noheader").stdout.strip():
        assert time.monotonic() < until, "the jobs are still there"
        time.sleep(0.5)
    assert json.loads((tmp_path / "out" / "fleet.json").read_text())["interrupted"] is True
