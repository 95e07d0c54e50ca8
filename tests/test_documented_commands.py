"""What the commands of the documentation do: levels, some checks, baselines, JupyterLab."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
from nbformat import v4
from typer.testing import CliRunner

from tests.conftest import make, save, section
from xpulab import cli, files, messages
from xpulab.harness.sections import LEVELS
from xpulab.records import baselines

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "xpulab"]


def put(folder, *cells):
    """A notebook `shown` with a smoke, a quick and a standard section, a check in each, and these cells in the quick one."""
    code = []
    for level in LEVELS:
        code += [section(level, level=level), f'check.equal("shown.{level}", 2, 2, control=3)']
        if level == "quick":
            code += [v4.new_code_cell(cell, metadata={"tags": ["nbval-ignore-output"]}) for cell in cells]
    save(make(*code, capabilities=["shown"]), folder / "shown.ipynb")


def run(folder, *options):
    """The exit code, what was printed, and result.json of a run of `shown` without a fork server."""
    command = [*COMMAND, "run", "shown.ipynb", "--cold", "--out", "out", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert (folder / "out" / "result.json").exists(), done.stderr
    return done.returncode, done.stdout, json.loads((folder / "out" / "result.json").read_text())


@pytest.mark.parametrize(("level", "checks"), [("smoke", 1), ("quick", 2), ("standard", 3)])
def test_a_level_runs_its_sections_and_those_of_lower_levels(tmp_path, level, checks):
    put(tmp_path)
    code, _, result = run(tmp_path, "--level", level, "--device", "auto")
    (notebook,) = result["notebooks"]
    assert (code, result["outcome"], result["level"], notebook["planned"]) == (0, "passed", level, checks)


@pytest.mark.parametrize(("measured", "code"), [("2", 0), ("1", 1)])
def test_a_run_of_some_checks_is_partial_and_its_exit_code_is_that_of_what_ran(tmp_path, measured, code):
    put(tmp_path, f'check.equal("shown.more", {measured}, 2, control=3)')
    done = run(tmp_path, "--check", "shown.mo*", "--check", "shown.smoke", "--device", "cpu", "--cards", "1")
    assert (done[0], done[2]["outcome"], done[2]["green"]) == (code, "partial", code == 0)
    assert [check["name"] for check in done[2]["notebooks"][0]["checks"]] == ["shown.smoke", "shown.quick", "shown.more"]
    assert "Partial run" in done[1] and "Partial run" in (tmp_path / "out" / "index.html").read_text()


def test_a_baseline_is_measured_and_stored(tmp_path, monkeypatch):
    put(
        tmp_path,
        "from xpulab.chapters.shared.device import use_device\nuse_device(device, cards)",
        'with check.baseline("shown.rate", level=level, conditions={"seed": seed}, means="as before") as rows:\n'
        '    rows.losses("loss", [3.0, 2.0], control=[3.0, 3.0])',
    )
    monkeypatch.setattr(files, "NOTEBOOKS", tmp_path)
    monkeypatch.setenv(baselines.FOLDER, str(tmp_path / "kept"))
    baselines.load_all.cache_clear()
    options = ["--runs", "2", "--device", "cpu", "--cards", "1", "--level", "quick", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(cli.app, ["baseline", *options])
    baselines.load_all.cache_clear()
    assert done.exit_code == 0, done.output
    (stored,) = baselines.load(tmp_path / "kept" / "cpu.json")
    assert (stored.level, stored.runs, [entry.value for entry in stored.entries]) == ("quick", 2, [(3.0, 2.0)])


def test_lab_opens_the_chinese_notebooks_whose_kernels_know_the_language(monkeypatch):
    started = []
    monkeypatch.setattr("xpulab.warm.kernels.run_command", lambda command: started.append(command) or 0)
    monkeypatch.setenv(messages.VARIABLE, "zh")
    done = CliRunner().invoke(cli.app, ["lab", "--no-browser", "--port", "8899"])
    assert (done.exit_code, started[0][-4:]) == (0, [str(files.NOTEBOOKS / "zh"), "--no-browser", "--port", "8899"]), (
        done.output
    )
    monkeypatch.setenv(messages.VARIABLE, "fr")
    assert CliRunner().invoke(cli.app, ["lab"]).exit_code == 2 and len(started) == 1


def test_jupyterlab_starts_with_the_warm_kernel(tmp_path):
    settings = {"ServerApp": {"allow_root": True, "open_browser": False, "ip": "127.0.0.1", "port": 0, "token": "token"}}
    (tmp_path / "jupyter_server_config.json").write_text(json.dumps({**settings, "ExtensionApp": {"open_browser": False}}))
    folders = {"JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    scripts = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, **folders, "PATH": scripts, "BROWSER": "true"}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "xpulab", "lab"],
            cwd=tmp_path,
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        ) as process,
    ):
        try:
            kernels = kernelspecs(tmp_path, process)
            assert is_warm(kernels.get("python3")), (tmp_path / "log").read_text()
        finally:
            processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            _, alive = psutil.wait_procs(processes, 20)
            for each in alive:
                each.kill()
    assert alive == []


def is_warm(kernel):
    """Whether a kernel that the server offers is forked."""
    return kernel is not None and "kernel_provisioner" in kernel["spec"]["metadata"]


def kernelspecs(folder, process):
    """The kernels that the server offers, by name, once it answers."""
    until = time.monotonic() + 100
    while time.monotonic() < until and process.poll() is None:
        for served in (folder / "runtime").glob("jpserver-*.json"):
            with contextlib.suppress(OSError, ValueError):
                url = json.loads(served.read_text())["url"]
                address = f"{re.sub('[^/]*$', '', url)}api/kernelspecs?token=token"
                with urllib.request.urlopen(address, timeout=5) as answer:
                    return json.load(answer)["kernelspecs"]
        time.sleep(0.2)
    return {}
