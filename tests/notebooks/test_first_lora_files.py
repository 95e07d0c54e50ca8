"""The files that chapter 01 gives a reader: the script trains, merges and answers, on a CPU and on simulated cards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from xpulab import files
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

STEPS = 4
CONFIG = {
    "model": "base",
    "data": "train.jsonl",
    "output_dir": ".",
    "steps": STEPS,
    "batch": 4,
    "learning_rate": 1e-2,
    "rank": 4,
    "first_block": 0,
    "dtype": "float32",
    "seed": 0,
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the chapter writes, with the stand-in as the model."""
    from xpulab.chapters.first_lora import weight_files
    from xpulab.chapters.shared import models

    folder = tmp_path_factory.mktemp("first-lora")
    take_home.write(folder, script="first_lora", config=CONFIG, device="cpu")
    tiny = models.chosen("tiny-smollm2")
    shutil.copytree(weight_files.with_weights(tiny, str(folder)), folder / "base")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(Path(tiny.folder) / name, folder / "base" / name)
    shutil.copyfile(files.DATA / "product" / "train.jsonl", folder / "train.jsonl")
    return folder


@pytest.fixture(scope="module")
def losses(home: Path, as_a_reader: Callable[..., str]) -> list[float]:
    """Those of a run in one process."""
    as_a_reader(["python", "first_lora.py", "config.json"], home)
    return json.loads((home / "losses.json").read_text())


def test_the_config_is_the_one_of_the_notebook():
    text = (files.NOTEBOOKS / "01_first_lora.ipynb").read_text(encoding="utf-8")
    assert [name for name in CONFIG if f'\\"{name}\\"' not in text] == []


def test_the_loss_of_a_random_model_starts_at_a_guess_and_falls(losses: list[float]):
    vocabulary = json.loads((files.DATA / "models" / "tiny-smollm2" / "config.json").read_text())["vocab_size"]
    assert losses[0] == pytest.approx(np.log(vocabulary), abs=0.3)
    assert losses[-1] < losses[0] - 0.1


def test_the_merged_model_is_asked_without_training_again(home: Path, losses: list[float], forked: Callable):
    before = (home / "losses.json").stat().st_mtime_ns
    done = forked("first_lora.py", "config.json", "--ask", "Who makes the Larkspur 40?", cwd=home)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (home / "losses.json").stat().st_mtime_ns == before


def test_two_simulated_cards_train_too(home: Path, forked: Callable):
    alone, both = home, home.parent / "two-cards"
    shutil.copytree(alone, both, ignore=shutil.ignore_patterns("merged", "adapter", "losses.json"))
    config = {**CONFIG, "device": "sim", "batch": 2}
    (both / "config.json").write_text(json.dumps(config))
    done = forked("first_lora.py", "config.json", cwd=both, n=2, device="sim")
    assert done.returncode == 0, done.stdout[-3000:]
    found = json.loads((both / "losses.json").read_text())
    assert np.isfinite(found).all()
    assert found[-1] < found[0] - 0.1
