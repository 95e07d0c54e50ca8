"""`xpulab operations init` writes a site's files from what Slurm or Kubernetes shows; both are doubles here."""

from __future__ import annotations

import os
import subprocess

import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from xpulab import cli, files

SINFO = "login (null)\nn1 gpu:a100:8(S:0-1)\nn2 xpu:8\nn3 xpu:8\nn3 xpu:8"
KUBECTL = "n1 xpu: gpu:8\nn2 xpu: gpu:8\nn3 xpu:4 gpu:\nlogin xpu: gpu:0"


@pytest.fixture
def init(tmp_path, monkeypatch):
    """init(tool, answer, options) with a double of the tool: its exit code and output; the files are in tmp_path/out."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def run(tool, answer, *options):
        (tmp_path / tool).write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
        (tmp_path / tool).chmod(0o755)
        done = CliRunner().invoke(cli.app, ["operations", "init", *options, "--out", str(tmp_path / "out")])
        return done.exit_code, done.output

    return run


def test_slurms_files_have_the_clone_and_the_cards_of_most_nodes(init, tmp_path):
    code, printed = init("sinfo", SINFO, "--slurm")
    assert code == 0 and "2 nodes with 8 xpu each" in printed and "left out: nodes with 8 gpu" in printed
    script = '. "$0"; echo $XPULAB_HOME $XPULAB_DEVICE $XPULAB_CARDS $XPULAB_EXPECT $XPULAB_DRY_RUN'
    read = subprocess.run(["sh", "-c", script, str(tmp_path / "out/xpulab.conf")], capture_output=True, text=True)
    assert read.stdout.split() == [str(files.ROOT), "xpu", "8", "8", "1"]
    lines = dict(line.split("=", 1) for line in (tmp_path / "out/slurm.conf").read_text().splitlines() if line[0] != "#")
    for name in ("HealthCheckProgram", "Prolog", "Epilog"):
        assert os.access(lines[name], os.X_OK), lines[name]


def test_cards_of_different_models_are_all_cards_of_their_node(init):
    code, printed = init("sinfo", "n1 gpu:a100:4(S:0-1),gpu:v100:no_consume:4(S:2-3),nic:2", "--slurm")
    assert code == 0 and "1 nodes with 8 gpu each" in printed


def test_the_manifests_have_the_nodes_and_the_cards_of_most_nodes(init, tmp_path):
    assert init("kubectl", KUBECTL, "--kubernetes")[0] == 0
    documents = {}
    for path in (tmp_path / "out").glob("*.yaml"):
        documents |= {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}
    for document in documents.values():
        kubernetes_validate.validate(document, "1.37.0", strict=True)
    job, (measure,) = documents["Job"]["spec"], documents["Job"]["spec"]["template"]["spec"]["containers"]
    assert (job["completions"], job["parallelism"], measure["resources"]["limits"]["nvidia.com/gpu"]) == (2, 2, 8)
    assert {"name": "XPULAB_DEVICE", "value": "gpu"} in measure["env"] and "xpu-smi" not in str(documents)
    assert "xpu=on" not in str(documents) and "nvidia.com/gpu.present=true" in str(documents)
    gate, taint = documents["DaemonSet"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "XPULAB_CARDS", "value": "8"} in gate["env"] and {"name": "XPULAB_DEVICE", "value": "gpu"} in gate["env"]
    assert {"name": "XPULAB_DRY_RUN", "value": "1"} in taint["env"]


@pytest.mark.parametrize(
    ("answer", "options", "named"),
    [
        (SINFO, [], "--slurm or --kubernetes"),
        (SINFO, ["--slurm", "--kubernetes"], "--slurm or --kubernetes"),
        ("login (null)", ["--slurm"], "no node with cards"),
        ("END\nexit 3\ncat <<'END'", ["--slurm"], "status 3"),
    ],
)
def test_what_is_not_found_is_said_and_nothing_is_written(init, tmp_path, answer, options, named):
    code, printed = init("sinfo", answer, *options)
    assert code == 2 and named in " ".join(printed.split()) and not (tmp_path / "out").exists()


def test_files_that_exist_are_not_replaced(init, tmp_path):
    (tmp_path / "out").mkdir()
    code, printed = init("sinfo", SINFO, "--slurm")
    assert code == 2 and "--out" in printed and list((tmp_path / "out").iterdir()) == []
