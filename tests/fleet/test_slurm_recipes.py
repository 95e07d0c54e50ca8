"""The recipes for Slurm in env/operations/slurm, executed by a real slurmctld and slurmd on three nodes.

All nodes are on this host, so each has a folder of verdicts, and settings, of its own.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import make, save
from tests.env.operations.conftest import DRAIN_REASON, write_verdict
from tests.fleet.conftest import slurm_folder
from tests.fleet.slurm_cluster import NODES, cluster
from xpulab.files import ROOT

pytestmark = pytest.mark.cluster

SLURM = ROOT / "env/operations/slurm"
WITHIN = 120.0
OPERATOR = "fan is loud"

SETTINGS = """XPULAB_PYTHON={python}
XPULAB_VERDICTS={folder}/verdicts/$XPULAB_NODE
XPULAB_DEVICE=cpu
[ ! -r {folder}/settings-$XPULAB_NODE ] || . {folder}/settings-$XPULAB_NODE
"""
WRAPPER = """#!/bin/sh
exec 9>>{folder}/{name}-running
flock --shared 9
[ ! -e {folder}/{name}-paused ] || exit 0
exec 8>>{folder}/{name}-running-$SLURMD_NODENAME
flock {wait} 8 || exit 0
/usr/bin/env -i SLURM_CONF={folder}/slurm.conf XPULAB_SETTINGS={folder}/xpulab.conf \\
    SLURMD_NODENAME=$SLURMD_NODENAME {script} 8>&- 9>&-
code=$?
echo $code >> {folder}/{name}-$SLURMD_NODENAME
exit $code
"""
"""A site's own variables without /etc: with them a recipe gets what slurmd gives a health check, which is SLURMD_NODENAME.

Of a node one health check runs at a time: slurmd starts the next one after two seconds, also on a machine that is loaded.
"""


class Site:
    """A cluster whose health check and prolog are the recipes."""

    def __init__(self, folder, running):
        self.folder, self.cluster = folder, running

    def put(self, node, *, red=False, hours=1.0):
        """Make this the only verdict on a node."""
        self.remove(node)
        write_verdict(self.folder / "verdicts" / node / "run", red, hours)

    def remove(self, node):
        shutil.rmtree(self.folder / "verdicts" / node, ignore_errors=True)

    def set(self, node, line):
        """Settings of one node."""
        (self.folder / f"settings-{node}").write_text(f"{line}\n")

    def pause_health_checks(self):
        """Start none any more; returns when none runs: one that began before would still read what is put now."""
        (self.folder / "health-paused").touch()
        with (self.folder / "health-running").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def wait_for_health_checks(self, node, count=2):
        """Wait for so many: the first may have read what was there before."""
        ended = self.folder / f"health-{node}"
        before = len(ended.read_text().splitlines()) if ended.exists() else 0
        self.wait(lambda: len(ended.read_text().splitlines()) >= before + count, f"{count} health checks on {node}")

    def wait(self, condition, what):
        until = time.monotonic() + WITHIN
        while not condition():
            shown = {node: (self.cluster.state(node), self.cluster.reason(node), self.comment(node)) for node in NODES}
            assert time.monotonic() < until, f"not within {WITHIN:.0f} s: {what}; {shown}"
            time.sleep(0.2)

    def comment(self, node):
        lines = self.cluster.run("scontrol", "show", "node", node).stdout.splitlines()
        return next((line.strip().removeprefix("Comment=") for line in lines if line.strip().startswith("Comment=")), "")

    def submit(self, *arguments):
        """Submit a job; returns its number."""
        variables = {"XPULAB_SETTINGS": str(self.folder / "xpulab.conf"), "XPULAB_HOME": str(ROOT)}
        done = self.cluster.run("sbatch", "--parsable", "--output=/dev/null", *arguments, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number):
        """What Slurm says of a job: by name its fields."""
        words = self.cluster.run("scontrol", "--oneliner", "show", "job", number).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)


@pytest.fixture(scope="module")
def running_site():
    with slurm_folder() as name:
        folder = Path(name)
        (folder / "xpulab.conf").write_text(SETTINGS.format(python=sys.executable, folder=folder))
        for recipe, script, wait in (("health", "health_check.sh", "--nonblock"), ("prolog", "prolog.sh", "")):
            wrapper = folder / f"{recipe}.sh"
            wrapper.write_text(WRAPPER.format(folder=folder, name=recipe, script=SLURM / script, wait=wait))
            wrapper.chmod(0o755)
        with cluster(folder, more="\n".join(documented_lines(folder))) as running:
            yield Site(folder, running)


@pytest.fixture
def site(running_site):
    """The site with green verdicts, all nodes usable, and no job."""
    for path in [*running_site.folder.glob("settings-*"), *running_site.folder.glob("*-paused")]:
        path.unlink()
    for node in NODES:
        running_site.put(node)
        running_site.cluster.run("scontrol", "update", f"NodeName={node}", "Comment=")
    running_site.cluster.restore()
    return running_site


def documented_lines(folder):
    """The lines of env/operations/slurm/slurm.conf with the wrappers of this folder, and a shorter interval."""
    here = {"HealthCheckProgram": folder / "health.sh", "Prolog": folder / "prolog.sh", "HealthCheckInterval": "2"}
    for line in (SLURM / "slurm.conf").read_text().splitlines():
        name, _, value = line.partition("=")
        if not line.startswith("#"):
            yield f"{name}={here.get(name, value)}"


def test_a_red_node_is_drained_with_its_reason_and_resumed_when_it_is_green_again(site):
    site.put("node1", red=True)
    site.wait(lambda: site.cluster.state("node1") == "drained", "node1 drained")
    assert site.cluster.reason("node1") == DRAIN_REASON
    assert [site.cluster.state(node) for node in ("node2", "node3")] == ["idle", "idle"]
    site.remove("node1")
    site.wait(lambda: site.comment("node1").startswith("xpulab: unknown, "), "a comment")
    assert site.cluster.reason("node1") == DRAIN_REASON  # only a green verdict resumes it
    site.put("node1")
    site.wait(lambda: site.cluster.state("node1") == "idle", "node1 idle")
    assert site.cluster.reason("node1") == "none"


def test_of_two_nodes_that_turn_red_within_an_hour_one_is_drained(site):
    """Of three nodes 10 % are none, and one may always be drained."""
    for node in ("node1", "node2"):
        site.put(node, red=True)
    site.wait(lambda: any(site.comment(node).startswith("xpulab: not drained, ") for node in NODES), "a comment")
    site.wait_for_health_checks("node1")
    assert sorted(site.cluster.state(node) for node in NODES) == ["drained", "idle", "idle"]


def test_a_node_that_an_operator_drained_stays_drained_with_the_operators_reason(site):
    site.cluster.run("scontrol", "update", "NodeName=node2", "State=DRAIN", f"Reason={OPERATOR}")
    for red in (False, True):
        site.put("node2", red=red)
        site.wait_for_health_checks("node2")
        assert (site.cluster.state("node2"), site.cluster.reason("node2")) == ("drained", OPERATOR)


@pytest.mark.parametrize("line", ["XPULAB_MAX_AGE=0", "XPULAB_PYTHON=/nowhere/python"], ids=["too old", "no Python"])
def test_without_a_verdict_that_is_young_a_node_gets_a_comment_and_is_not_drained(site, line):
    site.set("node3", line)
    site.wait(lambda: site.comment("node3").startswith("xpulab: unknown, "), "a comment")
    assert (site.cluster.state("node3"), site.cluster.reason("node3")) == ("idle", "none")
    site.set("node3", "")
    site.wait(lambda: site.comment("node3") == "", "no comment")


def test_a_node_without_its_cards_is_drained_although_its_verdict_is_green(site):
    site.set("node2", "XPULAB_DEVICE=xpu\nXPULAB_EXPECT=8")
    site.wait(lambda: site.cluster.state("node2") == "drained", "node2 drained")
    assert site.cluster.reason("node2").endswith("rerun: xpulab host --expect 8 --device xpu --beside-jobs")


@pytest.mark.parametrize("line", ["", "XPULAB_WITHOUT_VERDICT=1"], ids=["red", "no verdict where the site wants one"])
def test_a_red_prolog_drains_the_node_and_the_job_waits_for_another(site, line):
    site.pause_health_checks()
    site.set("node1", line)
    site.remove("node1") if line else site.put("node1", red=True)
    number = site.submit("--nodelist=node1", "--wrap", "true")
    site.wait(lambda: site.job(number).get("Restarts") == "1", "the job to be requeued")
    assert site.job(number)["JobState"] == "PENDING" and "Held" not in site.job(number)["Reason"]
    assert site.cluster.state("node1") in ("drained", "draining")
    assert line or site.cluster.reason("node1") == DRAIN_REASON


def test_the_nightly_job_measures_its_nodes_although_one_of_them_cannot_run(site):
    site.pause_health_checks()
    for node in NODES:
        site.remove(node)
    site.set("node2", "XPULAB_DEVICE=xpu")  # which is not there, so its task exits with 2
    log = site.folder / "nightly.log"
    made = make('check.equal("shown.two", 2, 2, control=3)', level="smoke", capabilities=["shown"], budget=30)
    notebook = str(save(made, site.folder / "shown.ipynb"))
    options = ["--nodes=2", "--nodelist=node1,node2", f"--output={log}"]
    number = site.submit(*options, str(SLURM / "nightly.sbatch"), notebook, "--cold")
    site.wait(lambda: site.job(number).get("JobState") in ("COMPLETED", "FAILED"), "the job to end")
    measured = [len(list((site.folder / "verdicts" / node).glob("*Z/result.json"))) for node in NODES]
    assert measured == [1, 0, 0] and "no xpu on this machine" in log.read_text(), log.read_text()
