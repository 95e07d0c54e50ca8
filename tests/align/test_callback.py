"""xpulab.align.Log as a callback of PaddleNLP's own Trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xpulab import files
from xpulab.align.compare import DIFFERS, SAME, WITHIN, align
from xpulab.align.read import read_log

pytestmark = pytest.mark.integration


SCRIPT = str(Path(__file__).with_name("callback.py"))
HALF = {"per_device_train_batch_size": 2}
RUNS = {"a": {}, "again": {}, "accumulated": {**HALF, "gradient_accumulation_steps": 2}, "decay": {"weight_decay": 0.5}}


def start(folder, runs, *launcher):
    """Start the runs in one process, or with a launcher in several; returns it."""
    command = [sys.executable, *launcher, SCRIPT, str(folder), json.dumps(runs)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(files.ROOT)}
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the logs, and by run the losses that the trainer itself logs, rounded to 8 decimals."""
    folder = tmp_path_factory.mktemp("callback")
    launcher = ("-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(folder / "ranks"))
    losses = {}
    for process in [start(folder, RUNS), start(folder, {"two": HALF}, *launcher)]:
        printed, errors = process.communicate(timeout=250)
        assert process.returncode == 0, errors
        for name, *shown in map(str.split, printed.splitlines()):
            if name in RUNS:
                losses[name] = [float(loss) for loss in shown]
    return folder, losses


@pytest.mark.parametrize("name", ["a", "accumulated"])
def test_the_losses_are_those_of_the_trainer_without_its_rounding(trained, name):
    folder, losses = trained
    logged = list(read_log(folder / f"{name}.jsonl").columns["loss"].values)
    assert [round(loss, 8) for loss in logged] == pytest.approx(losses[name], abs=1e-6) and len(logged) == 4
    assert logged != losses[name]


def test_all_that_a_comparison_needs_is_in_the_log(trained):
    log = read_log(trained[0] / "a.jsonl")
    assert log.batches is not None and len(log.columns) == 3
    needed = ("settings.learning_rate", "settings.stated", "model.fuse_attention_qkv", "optimizer.clip_norm", "machine.device")
    assert set(needed) <= set(log.environment) and log.environment["settings.stated"] == "by the user"


def test_equal_trainings_are_the_same_and_another_weight_decay_is_named(trained):
    folder, _ = trained
    assert align(folder / "a.jsonl", folder / "again.jsonl").verdict == SAME
    found = align(folder / "a.jsonl", folder / "decay.jsonl")
    assert (found.verdict, found.beyond.step, found.beyond.place) == (DIFFERS, 2, "update or forward")
    assert [x.name for x in found.environment] == ["optimizer.weight_decay", "settings.weight_decay"]


def test_other_batches_of_the_same_rows_are_named(trained):
    found = align(trained[0] / "a.jsonl", trained[0] / "accumulated.jsonl")
    assert found.beyond.place == "batch" and "gradient_accumulation_steps" in found.environment[1].name


def test_two_processes_log_once_and_their_mean_loss(trained):
    found = align(trained[0] / "accumulated.jsonl", trained[0] / "two.jsonl")
    assert found.verdict == WITHIN and not found.has_batches
    assert {quantity.name for quantity in found.quantities if quantity.first_bit} <= {"loss"}, "gradients are equal"
    assert found.environment[0].name == "parallel.processes"
