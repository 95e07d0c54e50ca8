"""xpulab.align.Log as a callback of PaddleNLP's own Trainer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xpulab import files
from xpulab.align.compare import DIFFERS, SAME, align
from xpulab.align.read import read_log

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the logs, and by run the losses that the trainer itself logs, rounded to 8 decimals."""
    folder = tmp_path_factory.mktemp("callback")
    command = [sys.executable, str(Path(__file__).with_name("callback.py")), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(files.ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    return folder, {name: [float(loss) for loss in losses] for name, *losses in lines}


@pytest.mark.parametrize("name", ["a", "accumulated"])
def test_the_losses_are_those_of_the_trainer_without_its_rounding(trained, name):
    folder, losses = trained
    logged = [step.values["loss"] for step in read_log(folder / f"{name}.jsonl").steps.values()]
    assert [round(loss, 8) for loss in logged] == pytest.approx(losses[name], abs=1e-6) and len(logged) == 4
    assert logged != losses[name]


def test_all_that_a_comparison_needs_is_in_the_log(trained):
    log = read_log(trained[0] / "a.jsonl")
    assert all(step.batch and len(step.values) == 4 for step in log.steps.values())
    needed = ("settings.learning_rate", "settings.stated", "model.fuse_attention_qkv", "optimizer.clip_norm", "machine.device")
    assert set(needed) <= set(log.environment) and log.environment["settings.stated"] == "by the user"


def test_equal_trainings_are_the_same_and_another_weight_decay_is_named(trained):
    folder, _ = trained
    assert align(folder / "a.jsonl", folder / "again.jsonl").verdict == SAME
    found = align(folder / "a.jsonl", folder / "decay.jsonl")
    assert (found.verdict, found.beyond.step, found.beyond.place) == (DIFFERS, 2, "update")
    assert [x.name for x in found.environment] == ["optimizer.weight_decay", "settings.weight_decay"]


def test_other_batches_of_the_same_rows_are_named(trained):
    found = align(trained[0] / "a.jsonl", trained[0] / "accumulated.jsonl")
    assert found.beyond.place == "batch" and "gradient_accumulation_steps" in found.environment[1].name
