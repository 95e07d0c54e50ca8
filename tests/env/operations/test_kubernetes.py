"""The manifests fit Kubernetes' schema, ask for cards as documented, and their commands do what they say."""

from __future__ import annotations

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
    ("verdict", "code", "called"),
    [
        ({}, "0", [f"taint node node1 {TAINT}:NoSchedule-"]),
        ({"red": True}, "1", [f"taint node node1 {TAINT}:NoSchedule --overwrite"]),
        ({"hours": 50.0}, "2", []),
    ],
    ids=["green", "red", "too old"],
)
def test_the_daemon_set_is_ready_and_removes_the_taint_only_of_a_green_node(documents, site, verdict, code, called):
    site.put(**verdict)
    site.tool("sleep", "exit 1")  # ends each loop after its first round
    site.tool("kubectl", f'echo "$@" >> {site.folder}/calls')
    path = f"{site.bin}:/usr/bin:/bin"
    shell, script, shared = container(documents["DaemonSet"], "gate")["command"]
    assert (shell, shared) == ("sh", "/shared")
    done = site.run("/bin/sh", script, str(site.folder), cwd=ROOT)
    assert (site.folder / "code").read_text() == f"{code}\n" and done.stdout == (site.folder / "line").read_text()

    ready, *arguments = container(documents["DaemonSet"], "gate")["readinessProbe"]["exec"]["command"]
    placed = [word.replace("/shared", str(site.folder)) for word in arguments]
    assert site.run(f"/usr/bin/{ready}", *placed, PATH=path).returncode == (0 if code == "0" else 1)

    (taint,) = container(documents["DaemonSet"], "taint")["args"]
    site.run("/bin/sh", "-c", taint.replace("/shared", str(site.folder)), PATH=path, NODE="node1")
    calls = site.folder / "calls"
    assert (calls.read_text().splitlines() if calls.exists() else []) == called
