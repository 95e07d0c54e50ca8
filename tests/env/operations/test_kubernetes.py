"""The manifests fit Kubernetes' schema, ask for cards as documented, and their commands do what they say."""

from __future__ import annotations

import os
import shutil
import time
from datetime import datetime, timedelta, timezone

import kubernetes_validate
import pytest
import yaml

from xpulab.files import ROOT

pytestmark = pytest.mark.cluster

VERSION = "1.37.0"
KUNLUN = "kunlunxin.com/xpu"
TAINT = "xpulab/not-ready"


@pytest.fixture
def documents(operations):
    """By kind the objects of the manifests."""
    texts = [path.read_text() for path in sorted((operations / "kubernetes").glob("*.yaml"))]
    return {each["kind"]: each for text in texts for each in yaml.safe_load_all(text)}


def pod(document):
    return document["spec"]["template"]["spec"]


def container(document, name):
    return next(each for each in pod(document)["containers"] if each["name"] == name)


def test_the_manifests_fit_the_schema(documents):
    assert set(documents) == {"Job", "DaemonSet", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    for document in documents.values():
        kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_job_runs_one_pod_on_each_node_also_on_one_that_is_not_ready(documents):
    job = documents["Job"]["spec"]
    assert (job["completionMode"], job["completions"], job["backoffLimitPerIndex"]) == ("Indexed", job["parallelism"], 0)
    (rule,) = pod(documents["Job"])["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
    assert rule["labelSelector"]["matchLabels"] == job["template"]["metadata"]["labels"]
    assert {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"} in pod(documents["Job"])["tolerations"]


def test_the_job_asks_for_as_many_cards_as_it_measures(documents):
    measure = container(documents["Job"], "measure")
    resources, variables = measure["resources"], {each["name"]: each.get("value") for each in measure["env"]}
    assert resources["requests"][KUNLUN] == resources["limits"][KUNLUN] == int(variables["XPULAB_CARDS"])
    assert variables["XPULAB_DEVICE"] == "xpu"


@pytest.mark.parametrize("kind", ["Job", "DaemonSet"])
def test_verdicts_are_kept_on_the_node(documents, kind):
    (volume,) = [each for each in pod(documents[kind])["volumes"] if each["name"] == "verdicts"]
    assert volume["hostPath"] == {"path": "/var/lib/xpulab", "type": "DirectoryOrCreate"}
    name = {"Job": "measure", "DaemonSet": "gate"}[kind]
    mounted = {each["name"]: each["mountPath"] for each in container(documents[kind], name)["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container(documents[kind], name)["env"]}
    assert mounted["verdicts"] == variables["XPULAB_VERDICTS"]


def test_the_command_of_the_job_leaves_a_verdict(documents, site):
    measure = container(documents["Job"], "measure")
    variables = {each["name"]: each["value"] for each in measure["env"] if "value" in each}
    command = ["/bin/bash", *measure["command"][1:], site.notebook(), "--cold"]
    done = site.run(*command, cwd=ROOT, **{**variables, "XPULAB_NODE": "node1"})
    assert (done.returncode, len(list(site.verdicts.glob("*Z/result.json")))) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("verdict", "code"), [({}, "0"), ({"red": True}, "1"), ({"hours": 50.0}, "2")], ids=["green", "red", "too old"]
)
def test_a_pod_is_ready_only_on_a_green_node(documents, site, verdict, code):
    site.put(**verdict)
    site.tool("sleep", "exit 1")  # ends the loop after its first round
    shell, script, shared = container(documents["DaemonSet"], "gate")["command"]
    assert (shell, shared) == ("sh", "/shared")
    done = site.run("/bin/sh", script, str(site.folder), cwd=ROOT)
    assert (site.folder / "code").read_text() == f"{code}\n" and done.stdout == (site.folder / "line").read_text()

    assert is_ready(documents, site) == (code == "0")


def is_ready(documents, site):
    """What the readiness probe says."""
    copy_scripts(documents, site)
    shell, *arguments = container(documents["DaemonSet"], "gate")["readinessProbe"]["exec"]["command"]
    placed = [word.replace("/shared", str(site.folder)) for word in arguments]
    return site.run(f"/bin/{shell}", *placed, PATH="/usr/bin:/bin").returncode == 0


def copy_scripts(documents, site):
    """What the first container does."""
    (copy, *scripts, shared) = pod(documents["DaemonSet"])["initContainers"][0]["command"]
    assert (copy, shared) == ("cp", "/shared")
    for script in scripts:
        shutil.copy(ROOT / script, site.folder)


def test_an_answer_of_some_minutes_ago_is_none(documents, site, taint):
    for code, taints in (("0", TAINT), ("1", "")):
        assert taint(code, taints=taints)[0] and is_ready(documents, site) == (code == "0")  # the control
        (site.folder / "calls").unlink()
        assert taint(code, taints=taints, minutes=6) == ([], "") and not is_ready(documents, site)


def test_a_gate_that_starts_knows_nothing_of_the_one_before_it(documents, site):
    site.tool("sleep", "exit 1")
    site.tool("python", f"ls {site.folder} > {site.folder}/seen")
    site.set(XPULAB_PYTHON=str(site.bin / "python"))
    (site.folder / "code").write_text("0\n")
    site.run("/bin/sh", container(documents["DaemonSet"], "gate")["command"][1], str(site.folder), cwd=ROOT)
    assert "code" not in (site.folder / "seen").read_text().split()


def ago(**parts):
    return (datetime.now(timezone.utc) - timedelta(**parts)).strftime("%Y-%m-%dT%H:%M:%S")


@pytest.fixture
def taint(documents, site):
    """taint(code, taints, drained, nodes, minutes, fails, settings) runs it once: what kubectl was asked, and the log.

    minutes: the age of the gate's answer. fails: what kubectl cannot do.
    """

    def run(code, taints="", drained="", nodes="node1\nnode2\nnode3", minutes=0, fails="nothing", **settings):
        copy_scripts(documents, site)
        (site.folder / "code").write_text(f"{code}\n")
        os.utime(site.folder / "code", times=(time.time() - 60 * minutes,) * 2)
        (site.folder / "nodes").write_text(f"{nodes}\n")
        site.tool("sleep", "exit 1")
        answers = f'"get nodes") cat {site.folder}/nodes ;; "get node") echo "{taints};{drained}" ;;'
        site.tool("kubectl", f'case "$1 $2" in {answers} *) echo "$@" >> {site.folder}/calls ;; esac; [ "$1" != {fails} ]')
        container_ = container(documents["DaemonSet"], "taint")
        variables = {each["name"]: each["value"] for each in container_["env"] if "value" in each} | settings
        shell, *command = (word.replace("/shared", str(site.folder)) for word in container_["command"])
        done = site.run(f"/bin/{shell}", *command, PATH=f"{site.bin}:/usr/bin:/bin", **{**variables, "NODE": "node1"})
        assert done.stderr == ""
        calls = site.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else [], done.stdout

    return run


def test_the_taint_follows_the_verdict(taint):
    assert taint(2) == ([], "") and taint(0) == ([], "") and taint(1, taints=f"other {TAINT}") == ([], "")
    tainted, annotated = taint(1)[0]
    assert annotated.startswith("annotate node node1 --overwrite xpulab/drained=2")
    assert tainted == f"taint node node1 {TAINT}:NoSchedule --overwrite"
    assert taint(0, taints=f"other {TAINT}")[0][2:] == [f"taint node node1 {TAINT}:NoSchedule-"]


def test_a_node_that_cannot_be_tainted_is_not_counted_as_tainted_and_one_that_cannot_be_counted_is_not_tainted(taint):
    put, remove = (f"taint node node1 {TAINT}:NoSchedule{how}" for how in (" --overwrite", "-"))
    assert taint(1, fails="taint") == ([put], "")
    calls, printed = taint(1, fails="annotate")
    assert [each for each in calls[1:] if each.startswith("taint")] == [put, remove] and "cannot be written" in printed


@pytest.mark.parametrize(("minutes", "is_tainted"), [(5, False), (61, True)])
def test_not_too_many_nodes_are_tainted_within_an_hour(taint, minutes, is_tainted):
    calls, printed = taint(1, nodes=f"node1\nnode2 {ago(days=2)} {ago(minutes=minutes)}\nnode3")
    assert (bool(calls), "not tainted, too many nodes" in printed) == (is_tainted, not is_tainted)


@pytest.mark.parametrize("value", ["1", "true", "1\r"])
def test_a_dry_run_logs_what_it_would_do(taint, value):
    assert taint(1, XPULAB_DRY_RUN=value) == ([], "xpulab: node1 would be tainted (dry run)\n")
    assert taint(0, taints=TAINT, XPULAB_DRY_RUN=value) == ([], "xpulab: node1 its taint would be removed (dry run)\n")


def test_a_node_that_was_tainted_three_times_within_a_week_stays_so(taint):
    calls, printed = taint(0, taints=TAINT, drained=" ".join(ago(days=day) for day in (6, 3, 1)))
    assert calls == [] and "held: green, but tainted 3 times" in printed
    assert taint(0, taints=TAINT, drained=" ".join(ago(days=day) for day in (8, 3, 1)))[0] != []
    assert len(taint(0, taints=TAINT, drained="9 9 9")[0]) == 2  # no times


def test_what_is_no_time_in_other_nodes_annotations_stops_no_taint(taint):
    assert taint(1, nodes="node1\nnode2 9999\nnode3 never")[0] != []


def test_each_container_has_the_least_rights_and_only_that_which_taints_has_the_token(documents):
    for kind in ("Job", "DaemonSet"):
        assert pod(documents[kind])["automountServiceAccountToken"] is False
        assert pod(documents[kind])["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for each in [*pod(documents[kind])["containers"], *pod(documents[kind]).get("initContainers", [])]:
            rights = each["securityContext"]
            assert (rights["allowPrivilegeEscalation"], rights["capabilities"]) == (False, {"drop": ["ALL"]})
            assert rights.get("readOnlyRootFilesystem", False) == (kind == "DaemonSet")
            assert any("serviceaccount" in mount["mountPath"] for mount in each["volumeMounts"]) == (each["name"] == "taint")
    assert pod(documents["DaemonSet"])["securityContext"]["runAsNonRoot"] is True
    (rule,) = documents["ClusterRole"]["rules"]
    assert rule == {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]}
