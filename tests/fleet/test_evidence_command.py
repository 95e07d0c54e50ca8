"""`xpulab run`, `selftest` and `bundle` leave one file; it holds no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile

import jsonschema
import pytest
from typer.testing import CliRunner

from xpulab import cli, files

pytestmark = pytest.mark.notebooks

SECRETS = {
    "HF_TOKEN": "planted-hf-value",
    "WANDB_API_KEY": "planted-wandb-value",
    "https_proxy": "http://planted-user:planted-password@planted-proxy.corp:3128",
    "XPULAB_NOTE": "https://planted-login:planted-word@host/path?x=1",
    "XPULAB_PATH": "/home/planted-name/models",
    "USER": "planted-account",
}
TOOL = "#!/bin/sh\necho 'proc 1: /data/people/planted-home/train.py --token planted-argument of planted-account'\n"
KERNEL = "#!/bin/sh\necho 'xpu: opened by /home/planted-name/a.out for planted-account'\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A smoke run of 00_environment on a machine full of secrets: its folder and bundle."""
    folder = tmp_path_factory.mktemp("node")
    for name, text in (("xpu_smi", TOOL), ("dmesg", KERNEL)):
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    home = folder / "data" / "people" / "planted-home"
    home.mkdir(parents=True)
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    environment = {**os.environ, **SECRETS, "HOME": str(home), "PATH": path, "SLURMD_NODENAME": "node17"}
    run, file = home / "run", folder / "node17.zip"
    commands = (
        ["run", "00_environment", "--device", "cpu", "--level", "smoke", "--out", str(run)],
        ["selftest", str(run), "--sample", "1"],
        ["bundle", str(run), "--out", str(file)],
    )
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-m", "xpulab", *command], env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return run, file


def test_it_holds_run_proof_and_machine_and_no_planted_secret(made):
    _, file = made
    with zipfile.ZipFile(file) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    run = {"run/result.json", "run/prove.json", "run/notebooks/00_environment.ipynb", "run/index.html"}
    machine = ("doctor.json", "versions.json", "variables.json", "kernel.txt", "tools/xpu_smi.txt")
    assert run | {f"machine/{name}" for name in machine} <= set(contents)
    assert [name for name, content in contents.items() if b"planted" in content] == []
    assert json.loads(contents["machine/doctor.json"])["paddle"]["version"]
    manifest = json.loads(contents["manifest.json"])
    schema = json.loads(files.data("schema", "bundle.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(manifest)
    assert manifest["node"] == "node17"


def test_it_is_judged_green(made):
    done = CliRunner().invoke(cli.app, ["judge", str(made[1])])
    assert done.exit_code == 0 and "node17" in done.output and "xpulab: green" in done.output


@pytest.mark.parametrize("of", [0, 1], ids=["folder", "file"])
def test_the_list_of_a_folder_or_a_file_is_shown_and_nothing_is_written(made, of, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli.app, ["bundle", str(made[of]), "--list"])
    assert done.exit_code == 0 and "run/result.json" in done.output
    assert list(tmp_path.iterdir()) == []
