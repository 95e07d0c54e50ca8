"""The file that chapter 08 gives away exports a model and serves it, without xpulab and without the notebook."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from xpulab import files

pytestmark = pytest.mark.notebooks

SCRIPT = files.DATA / "take_home" / "export.py"
CONFIG = {"model": str(files.DATA / "models" / "tiny-qwen2-sft"), "path": "served/model", "device": "cpu", "at_most": 24}
EXPORT = ("python", SCRIPT, "config.json")

Reader = Callable[..., str]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, as_a_reader: Reader) -> Path:
    """A folder with the config and the exported model."""
    folder = tmp_path_factory.mktemp("export")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    as_a_reader(EXPORT, folder)
    return folder


def test_the_config_is_the_one_of_the_notebook():
    text = (files.NOTEBOOKS / "08_export.ipynb").read_text(encoding="utf-8")
    assert [name for name in CONFIG if f'\\"{name}\\"' not in text] == []


def test_it_answers_as_the_model_does(home: Path, as_a_reader: Reader):
    assert "One process of a distributed job." in as_a_reader([*EXPORT, "--ask", "What is a rank?"], home).splitlines()


def test_sha256sum_verifies_the_files(home: Path):
    done = subprocess.run(
        ["sha256sum", "--check", "model.sha256"], cwd=home / "served", capture_output=True, text=True, timeout=20
    )
    assert (done.returncode, done.stdout) == (0, "model.json: OK\nmodel.pdiparams: OK\n")


def test_changed_weights_are_not_served(home: Path, tmp_path: Path, as_a_reader: Reader):
    shutil.copytree(home, tmp_path / "copy")
    weights = tmp_path / "copy" / "served" / "model.pdiparams"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x40")
    said = as_a_reader([*EXPORT, "--ask", "What is a rank?"], tmp_path / "copy", succeeds=False)
    assert "a file has changed since the export" in said
