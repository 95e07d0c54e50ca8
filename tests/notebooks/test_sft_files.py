"""The files that chapter 02 writes train without xpulab and without the notebook, and PaddleNLP reads their configuration."""

from __future__ import annotations

import json
import math
import re
import runpy
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from safetensors.numpy import load_file

from xpulab import files

pytestmark = pytest.mark.notebooks

NOTEBOOK = files.NOTEBOOKS / "02_sft.ipynb"
STEPS = 3


@pytest.fixture
def home(tmp_path):
    """The folder that the chapter's own cells write, with the settings of level quick."""
    from xpulab.chapters.shared import models, take_home

    names = {
        "seed": 0,
        "model": "tiny-qwen2",
        "folder": models.folder_of("tiny-qwen2"),
        "train": models.instructions("train"),
        "heldout": models.instructions("heldout"),
        "here": SimpleNamespace(name="cpu"),
        "files_to": str(tmp_path / "home"),
        **{"json": json, "Path": Path, "tempfile": tempfile, "models": models, "take_home": take_home},
    }
    sources = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    for first in ("settings = {", "home = Path("):
        (source,) = [source for source in sources if any(line.startswith(first) for line in source.splitlines())]
        exec(source, names)
    return names["home"]


def losses_in(printed):
    return [float(loss) for loss in re.findall(r"^log \d+ loss (\S+)$", printed, re.MULTILINE)]


def test_the_script_has_the_first_losses_of_the_notebook_and_saves_the_model(home, as_a_reader):
    printed = as_a_reader(["python", "sft.py", "config.json", "--max_steps", str(STEPS)], home)

    losses = losses_in(printed)
    stored = json.loads((files.DATA / "baselines" / "cpu.json").read_text(encoding="utf-8"))["baselines"]
    (entry,) = [
        entry
        for baseline in stored[:1]
        for entry in baseline["entries"]
        if (entry["check"], entry["case"]) == ("sft.baseline", "losses")
    ]
    assert losses == pytest.approx(entry["value"][:STEPS], abs=1e-4)
    assert losses[-1] < losses[0]
    assert "lm_head.weight" in load_file(home / "trained" / "model.safetensors")
    assert "saved in trained" in printed


def test_two_processes_train_on_simulated_cards(home, forked):
    done = forked("sft.py", "config.json", "--max_steps", str(STEPS), "--device", "sim", cwd=home, n=2, device="sim")

    log = done.stdout
    assert done.returncode == 0, log[-3000:]
    losses = losses_in(log)
    assert len(losses) == STEPS
    assert all(map(math.isfinite, losses))
    assert losses[0] == pytest.approx(math.log(512), abs=0.05)
    assert losses[-1] < losses[0]
    assert "world_size                    : 2" in log


def test_paddlenlp_reads_the_arguments_of_the_file(home, monkeypatch):
    from paddlenlp.trainer import PdArgumentParser
    from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig

    monkeypatch.setattr(sys, "argv", ["run_finetune.py", str(home / "config.json")])
    # llm/run_finetune.py has two more dataclasses; they are not in the wheel, and no argument of the file belongs to them
    read = PdArgumentParser((ModelConfig, DataConfig, SFTConfig)).parse_json_file_and_cmd_lines()

    written = json.loads((home / "config.json").read_text(encoding="utf-8"))
    for name, value in written.items():
        (owner,) = [each for each in read if hasattr(each, name)]
        seen = getattr(owner, name)
        assert getattr(seen, "value", seen) == ([] if name == "report_to" else value), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--longer", "shorter"], "longer: 'shorter' is unknown; choose"),
        (["--use_ssa", "true"], "use_ssa: this script does not honour it"),
        (["--reft", "true"], "reft: this script does not honour it"),
        (["--src_length", "8"], "src_length: this script does not honour it"),
        (["--dataset_name_or_path", "nowhere"], "nowhere: has neither train.json nor train.jsonl"),
    ],
)
def test_what_the_script_does_not_honour_is_refused_by_name(home, arguments, message, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    monkeypatch.setattr(sys, "argv", ["sft.py", "config.json", *arguments])
    with pytest.raises(SystemExit, match=message):
        runpy.run_path(str(home / "sft.py"))["main"]()
