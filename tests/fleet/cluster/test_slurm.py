"""`xpulab fleet run` on a real Slurm: which nodes it takes, which faults it names, what Ctrl-C leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from xpulab import cli

pytestmark = pytest.mark.cluster

COMMAND = [sys.executable, "-m", "xpulab", "fleet", "run"]
SMOKE = ["09_collectives", "--level", "smoke", "--device", "sim", "--cards", "2"]


@pytest.fixture
def small_disk(tmp_path):
    """The folder of a file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, timeout=30)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


@pytest.fixture
def fleet(cluster, tmp_path):
    """A function: a fleet run of all three nodes; exit code, output, by node what fleet.json has."""

    def run(*arguments, **variables):
        command = [*COMMAND, *arguments, "--nodes", "node[1-3]", "--timeout", "4", "--out", str(tmp_path / "out")]
        done = cluster.run(*command, timeout=500, **variables)
        record = tmp_path / "out" / "fleet.json"
        nodes = json.loads(record.read_text())["nodes"] if record.exists() else []
        return done.returncode, done.stdout + done.stderr, {node["node"]: node for node in nodes}

    return run


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


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"XPULAB_SIM_FAULTS": "flip collective kind=all_reduce rank=1 bit=20 from=1"}, "collectives.smoke-values"),
        ({"XPULAB_SIM_FAULTS": "hang collective rank=1 n=1"}, "had not ended after"),
        ({"TMPDIR": "small disk"}, "is full"),
    ],
    ids=["wrong sum", "hang", "full disk"],
)
def test_the_node_with_the_fault_is_red_and_the_others_are_green(cluster, fleet, tmp_path, request, variables, named):
    """The fleet run is in a job itself: its tasks are other jobs all the same."""
    if "TMPDIR" in variables:
        variables = {"TMPDIR": str(request.getfixturevalue("small_disk"))}
    cluster.give("node2", **variables)
    code, text, nodes = fleet(*SMOKE, SLURM_JOB_ID="4711")
    assert (code, {name: node["status"] for name, node in nodes.items()}) == (
        1,
        {"node1": "green", "node2": "unknown" if "TMPDIR" in variables else "red", "node3": "green"},
    ), text
    assert named in nodes["node2"]["sentence"] and (tmp_path / "out" / "compare.json").exists()


def test_a_node_whose_daemon_is_dead_is_silent(cluster, fleet):
    cluster.stop_slurmd("node3")
    code, text, nodes = fleet(*SMOKE)
    assert (code, [nodes[name]["status"] for name in ("node1", "node2", "node3")]) == (1, ["green", "green", "silent"]), text
    assert "Slurm: " in nodes["node3"]["sentence"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--nodes", "node[1,9]"], "node9"),
        (["--nodes", "all", "--partition", "gpu"], "gpu"),
        (["--nodes", "node[1"], "node[1"),
        (["--nodes", "3"], "node[1-3,7]"),
        (["--nodes", "node1", "--level", "soak"], "soak"),
        (["--nodes", "node1", "--levels", "smoke"], "--levels"),
        (["--nodes", "node1", "--engine", "kubernetes"], "slurm or ssh"),
        (["--nodes", "node1", "--engine", "ssh", "--partition", "all"], "--partition"),
        (["--nodes", "node1", "--engine-options", "'"], "--engine-options"),
        (["--nodes", "node1", "99_none"], "99_none"),
        (["--nodes", "node1", "--check", "no.such"], "no.such"),
    ],
)
def test_what_cannot_be_started_is_refused(refused, arguments, named):
    assert named in refused(*arguments)


def test_drained_nodes_are_left_out_and_named(cluster, fleet, refused):
    cluster.run("scontrol", "update", "NodeName=node1", "State=DRAIN", "Reason=too slow")
    code, text, nodes = fleet("00_environment", "--check", "install.one-framework", "--xpulab", "no-such-command")
    assert code == 1 and "node1: left out: Slurm: drained, too slow" in text
    assert [nodes[name]["status"] for name in ("node1", "node2", "node3")] == ["left out", "silent", "silent"]
    assert "too slow" in refused("--nodes", "node1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["Ctrl-C", "killed"])
def test_a_fleet_run_that_is_ended_leaves_no_job(cluster, ended, tmp_path, number):
    command = [*COMMAND, "09_collectives", "--nodes", "all", "--level", "standard", "--device", "sim", "--cards", "2"]
    command += ["--partition", "all", "--engine-options", "--comment=lab", "--out", str(tmp_path / "out")]
    code, text, errors = ended(command, cluster.environment, number)
    until = time.monotonic() + 60
    while cluster.run("squeue", "--noheader").stdout.strip():
        assert time.monotonic() < until, "the jobs are still there"
        time.sleep(0.5)
    if number == signal.SIGINT:
        assert code == 130 and "3 unknown" in text and "interrupted" in errors
        assert json.loads((tmp_path / "out" / "fleet.json").read_text())["interrupted"] is True
