"""The files that chapter 03 gives a reader: the script runs on a CPU and on simulated cards, and PaddleNLP reads the config."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xpulab import files, sim
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

STEPS = 48
BATCH = 8
CONFIG = {
    "model_name_or_path": "base",
    "dataset_name_or_path": "data",
    "output_dir": "adapter",
    "do_train": True,
    "lora": True,
    "lora_rank": 8,
    "learning_rate": 1e-2,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 5,
    "max_steps": STEPS,
    "seed": 0,
    "per_device_train_batch_size": BATCH,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
}
"""As the chapter writes it at level quick."""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """The folder that the chapter writes."""
    folder = tmp_path_factory.mktemp("lora")
    take_home.write(folder, script="lora", config=CONFIG, device="cpu")
    shutil.copytree(files.DATA / "models" / "tiny-qwen2-sft", folder / "base")
    (folder / "data").mkdir()
    shutil.copyfile(files.DATA / "instructions" / "xpu_train.jsonl", folder / "data" / "train.json")
    return folder


@pytest.fixture(scope="module")
def losses(home: Path, as_a_reader: Callable[..., str]) -> list[float]:
    """Those of a run in one process, which also writes the merged model."""
    as_a_reader(["python", "lora.py", "config.json", "--output_dir", "adapter", "--merge_to", "merged"], home)
    return json.loads((home / "adapter" / "losses.json").read_text())


def test_the_merged_model_needs_no_lora_and_answers_every_question(home: Path, losses: list[float]):
    from xpulab.chapters.shared import models

    rows = models.instructions("xpu_train")
    merged = models.new_model(str(home / "merged"), 0)
    answers = models.answers(merged, models.new_tokenizer(str(home / "merged")), rows)
    assert not [name for name in merged.state_dict() if "lora" in name]
    assert answers == [row["answer"] for row in rows]


def test_two_simulated_cards_take_the_steps_of_one_process(home: Path, losses: list[float], as_a_reader: Callable[..., str]):
    launch = ["python", "-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "logs", "lora.py", "config.json"]
    half = ["--device", "sim", "--output_dir", "sim", "--max_steps", "6", "--per_device_train_batch_size", str(BATCH // 2)]
    as_a_reader([*launch, *half], home, **sim.environment(2))
    both = json.loads((home / "sim" / "losses.json").read_text())
    assert np.isfinite(both).all()
    assert both[-1] < both[0] - 1.0
    assert both[0] == pytest.approx(losses[0], rel=0.05)  # the mean of two halves, which differ in their number of tokens


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--pissa", "true"], "cannot load a PiSSA adapter"), (["--use_mora", "true", "--merge_to", "m"], "merges MoRA wrongly")],
)
def test_the_script_refuses_what_this_release_does_wrongly(home: Path, arguments: list[str], message: str, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    monkeypatch.setattr(sys, "argv", ["lora.py", "config.json", *arguments])
    with pytest.raises(SystemExit, match=message):
        runpy.run_path(str(home / "lora.py"))["main"]()
