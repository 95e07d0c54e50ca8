"""The file that chapter 08 gives away exports a model and serves it, without xpulab and without the notebook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xpulab import files

pytestmark = pytest.mark.notebooks

SCRIPT = files.DATA / "take_home" / "export.py"
CONFIG = {"model": str(files.DATA / "models" / "tiny-qwen2-sft"), "path": "served/model", "device": "cpu", "at_most": 24}
SECONDS = 200
"""A run takes 10 s on an idle core, most of it to import PaddleNLP."""


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in the folder, without xpulab on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(SCRIPT), "config.json", *arguments]
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the config and the exported model."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    done = run(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def test_the_config_is_the_one_of_the_notebook():
    text = (files.NOTEBOOKS / "08_export.ipynb").read_text(encoding="utf-8")
    assert [name for name in CONFIG if f'\\"{name}\\"' not in text] == []


def test_it_answers_as_the_model_does(home: Path):
    done = run(home, "--ask", "What is a rank?")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == "One process of a distributed job."


def test_sha256sum_verifies_the_files(home: Path):
    done = subprocess.run(
        ["sha256sum", "--check", "model.sha256"], cwd=home / "served", capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (0, "model.json: OK\nmodel.pdiparams: OK\n")


def test_changed_weights_are_not_served(home: Path, tmp_path: Path):
    shutil.copytree(home, tmp_path / "copy")
    weights = tmp_path / "copy" / "served" / "model.pdiparams"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x40")
    done = run(tmp_path / "copy", "--ask", "What is a rank?")
    assert done.returncode == 1
    assert "a file has changed since the export" in done.stderr
