"""The recipes for Slurm in env/operations/slurm, executed by a real slurmctld and slurmd on three nodes.

All nodes are on this host, so each has a folder of verdicts, and settings, of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from slurm_cluster import NODES, cluster, missing

from tests.conftest import make, save
from xpulab.files import ROOT

pytestmark = pytest.mark.cluster

SLURM = ROOT / "env/operations/slurm"
WITHIN = 120.0
COMMAND = "xpulab run 00_demo --check demo.product --device sim --level smoke"
REASON = f"[node_problem] xpulab demo.product measured 2.5, expected < 1; rerun: {COMMAND}"
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
/usr/bin/env -i SLURM_CONF={folder}/slurm.conf XPULAB_SETTINGS={folder}/xpulab.conf \\
    SLURMD_NODENAME=$SLURMD_NODENAME {script} 9>&-
code=$?
echo $code >> {folder}/{name}-$SLURMD_NODENAME
exit $code
"""
"""A site's own variables without /etc: with them a recipe gets what slurmd gives a health check, which is SLURMD_NODENAME."""


class Site:
    """A cluster whose health check and prolog are the recipes."""

    def __init__(self, folder, running):
        self.folder, self.cluster = folder, running
        self.environment = {"XPULAB_SETTINGS": str(folder / "xpulab.conf"), "XPULAB_HOME": str(ROOT)}

    def put(self, node, *, red=False, hours=1.0):
        """Make this the only verdict on a node."""
        self.remove(node)
        path = self.folder / "verdicts" / node / "run" / "result.json"
        path.parent.mkdir(parents=True)
        row = {"name": "demo.product", "measured": 2.5 if red else 0.5, "expected": "< 1", "reason": None, "rows": []}
        check = {**row, "outcome": "failed" if red else "passed"}
        outcome = "failed" if red else "passed"
        notebook = {"name": "00_demo", "outcome": outcome, "reason": None, "compared": 1, "checks": [check], "explanations": []}
        date = (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat()
        result = {"outcome": outcome, "green": not red, "date": date, "level": "smoke", "device": "sim", "cards": 1}
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({**result, "notebooks": [notebook]}))
        temporary.rename(path)

    def remove(self, node):
        shutil.rmtree(self.folder / "verdicts" / node, ignore_errors=True)

    def set(self, node, **variables):
        """Settings of one node."""
        (self.folder / f"settings-{node}").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))

    def times(self, name, node):
        """How often a recipe has ended on a node."""
        path = self.folder / f"{name}-{node}"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def pause(self, name):
        """Start a recipe no more; returns when none runs: one that began before would still read what is put now."""
        (self.folder / f"{name}-paused").touch()
        with (self.folder / f"{name}-running").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    def wait_for_health_checks(self, node, count=2):
        """Wait for so many: the first may have read what was there before."""
        before = self.times("health", node)
        self.wait(lambda: self.times("health", node) >= before + count, f"{count} health checks on {node}")

    def wait(self, condition, what):
        until = time.monotonic() + WITHIN
        while not condition():
            assert time.monotonic() < until, f"not within {WITHIN:.0f} s: {what}; {self.shown()}"
            time.sleep(0.2)

    def shown(self):
        return {node: (self.cluster.state(node), self.cluster.reason(node), self.comment(node)) for node in NODES}

    def comment(self, node):
        lines = self.cluster.run("scontrol", "show", "node", node).stdout.splitlines()
        return next((line.strip().removeprefix("Comment=") for line in lines if line.strip().startswith("Comment=")), "")

    def drain(self, node):
        self.cluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={OPERATOR}")

    def submit(self, *arguments):
        """Submit a job; returns its number."""
        done = self.cluster.run("sbatch", "--parsable", "--output=/dev/null", *arguments, **self.environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def job(self, number):
        """What Slurm says of a job: by name its fields."""
        words = self.cluster.run("scontrol", "--oneliner", "show", "job", number).stdout.split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def restore(self):
        """Green verdicts on all nodes, usable, and no job."""
        for path in [*self.folder.glob("settings-*"), *self.folder.glob("*-paused")]:
            path.unlink()
        for node in NODES:
            self.put(node)
        self.cluster.restore()


@pytest.fixture(scope="module")
def running_site():
    if lacking := missing():
        message = f"needs {', '.join(lacking)} (Debian: slurm-wlm, munge)"
        pytest.fail(message) if os.environ.get("XPULAB_TEST_SLURM") == "required" else pytest.skip(message)
    temporary = tempfile.TemporaryDirectory(prefix="xpulab-site-", ignore_cleanup_errors=True)
    with temporary as name:
        folder = Path(name)
        (folder / "xpulab.conf").write_text(SETTINGS.format(python=sys.executable, folder=folder))
        for recipe, script in (("health", "health_check.sh"), ("prolog", "prolog.sh")):
            wrapper = folder / f"{recipe}.sh"
            wrapper.write_text(WRAPPER.format(folder=folder, name=recipe, script=SLURM / script))
            wrapper.chmod(0o755)
        with cluster(folder, more="\n".join(documented_lines(folder))) as running:
            yield Site(folder, running)


@pytest.fixture
def site(running_site):
    """The site with green verdicts, all nodes usable."""
    running_site.restore()
    return running_site


def documented_lines(folder):
    """The lines of env/operations/slurm/slurm.conf with the wrappers of this folder, and a shorter interval."""
    for line in (SLURM / "slurm.conf").read_text().splitlines():
        name, _, value = line.partition("=")
        if name == "HealthCheckProgram":
            value = folder / "health.sh"
        elif name == "Prolog":
            value = folder / "prolog.sh"
        elif name == "HealthCheckInterval":
            value = "2"
        if not line.startswith("#"):
            yield f"{name}={value}"


def test_a_red_node_is_drained_with_its_reason_and_resumed_when_it_is_green_again(site):
    site.put("node1", red=True)
    site.wait(lambda: site.cluster.state("node1") == "drained", "node1 drained")
    assert site.cluster.reason("node1") == REASON
    assert [site.cluster.state(node) for node in ("node2", "node3")] == ["idle", "idle"]
    site.remove("node1")
    site.wait(lambda: site.comment("node1").startswith("xpulab: unknown, "), "a comment")
    assert site.cluster.reason("node1") == REASON  # only a green verdict resumes it
    site.put("node1")
    site.wait(lambda: site.cluster.state("node1") == "idle", "node1 idle")
    assert site.cluster.reason("node1") == "none"


def test_a_node_that_an_operator_drained_stays_drained_with_the_operators_reason(site):
    site.drain("node2")
    site.wait_for_health_checks("node2")  # green
    assert (site.cluster.state("node2"), site.cluster.reason("node2")) == ("drained", OPERATOR)
    site.put("node2", red=True)
    site.wait_for_health_checks("node2")
    assert (site.cluster.state("node2"), site.cluster.reason("node2")) == ("drained", OPERATOR)


def test_without_a_verdict_that_is_young_a_node_gets_a_comment_and_is_not_drained(site):
    site.put("node3", hours=40.0)
    site.wait(lambda: site.comment("node3").startswith("xpulab: unknown, "), "a comment")
    assert (site.cluster.state("node3"), site.cluster.reason("node3")) == ("idle", "none")
    site.put("node3")
    site.wait(lambda: site.comment("node3") == "", "no comment")


def test_a_comment_of_an_operator_stays(site):
    site.cluster.run("scontrol", "update", "NodeName=node1", "Comment=on loan")
    site.remove("node1")
    site.wait_for_health_checks("node1")
    assert site.comment("node1") == "on loan"
    site.cluster.run("scontrol", "update", "NodeName=node1", "Comment=")


def test_a_node_without_the_cards_of_its_label_is_drained_although_its_verdict_is_green(site):
    site.set("node2", XPULAB_LABEL="xpu-8")
    site.wait(lambda: site.cluster.state("node2") == "drained", "node2 drained")
    expected = "[node_problem] xpulab cards measured 0 xpu, expected 8 xpu; rerun: xpulab cards xpu-8"
    assert site.cluster.reason("node2") == expected


def test_a_broken_environment_of_xpulab_drains_nothing(site):
    site.set("node1", XPULAB_PYTHON="/nowhere/python")
    site.wait(lambda: "cannot be run" in site.comment("node1"), "a comment")
    assert site.cluster.state("node1") == "idle"


def test_a_red_prolog_drains_the_node_with_its_reason_and_the_job_waits_for_another(site):
    site.pause("health")
    site.put("node1", red=True)
    number = site.submit("--nodelist=node1", "--wrap", "true")
    site.wait(lambda: site.job(number).get("Restarts") == "1", "the job to be requeued")
    job = site.job(number)
    assert job["JobState"] == "PENDING" and "Held" not in job["Reason"]
    assert site.cluster.state("node1") in ("drained", "draining")
    assert site.cluster.reason("node1") == REASON


def test_a_site_that_looks_at_the_host_drains_a_node_without_shared_memory(site):
    site.pause("health")
    (site.folder / "root/proc").mkdir(parents=True)
    (site.folder / "root/proc/mounts").write_text("tmpfs /dev/shm tmpfs rw,size=64m 0 0\n")
    site.set("node1", **{"XPULAB_HOST": "--host", "export XPULAB_SYSTEM_ROOT": site.folder / "root"})
    number = site.submit("--nodelist=node1", "--wrap", "true")
    site.wait(lambda: site.job(number).get("Restarts") == "1", "the job to be requeued")
    assert site.cluster.state("node1") in ("drained", "draining")
    assert "host shared-memory: /dev/shm has 0.0625 GiB" in site.cluster.reason("node1")


@pytest.mark.parametrize("red", [False, None], ids=["green", "no verdict"])
def test_a_job_starts_on_a_node_that_is_not_red(site, red):
    if red is None:
        site.remove("node1")
    before = site.times("prolog", "node1")
    done = site.cluster.run("srun", "--nodelist=node1", "-N1", "sh", "-c", "echo $SLURMD_NODENAME")
    assert (done.stdout.strip(), site.times("prolog", "node1")) == ("node1", before + 1), done.stderr


def test_a_site_can_refuse_jobs_on_a_node_without_a_verdict(site):
    site.remove("node1")
    site.set("node1", XPULAB_WITHOUT_VERDICT="1")
    number = site.submit("--nodelist=node1", "--wrap", "true")
    site.wait(lambda: site.job(number).get("Restarts") == "1", "the job to be requeued")
    assert site.cluster.state("node1") in ("drained", "draining")


def test_the_nightly_job_measures_its_nodes_although_one_of_them_cannot_run(site):
    site.pause("health")
    for node in NODES:
        site.remove(node)
    site.set("node2", XPULAB_DEVICE="xpu")  # which is not there, so its task exits with 2
    log = site.folder / "nightly.log"
    made = make('check.equal("shown.two", 2, 2, control=3)', level="smoke", capabilities=["shown"], budget=30)
    notebook = str(save(made, site.folder / "shown.ipynb"))
    options = ["--nodes=2", "--nodelist=node1,node2", f"--output={log}"]
    number = site.submit(*options, str(SLURM / "nightly.sbatch"), notebook, "--cold")
    site.wait(lambda: site.job(number).get("JobState") in ("COMPLETED", "FAILED"), "the job to end")
    assert [len(list((site.folder / "verdicts" / node).glob("*Z/result.json"))) for node in NODES] == [1, 0, 0], log.read_text()
    gate = [sys.executable, "-m", "xpulab", "gate", str(site.folder / "verdicts" / "node1")]
    done = subprocess.run(gate, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.startswith("xpulab: green 0.0 h ago")) == (0, True), done.stdout
    assert "1: xpulab: no xpu on this machine" in log.read_text()
