"""Real trainings on the CPU, logged and compared: each injected difference is found at the first step that it touches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from xpulab import files
from xpulab.align.compare import DIFFERS, SAME, WITHIN, align

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("train.py")
STEPS = 20
PERTURBED = 7
"""Trainings from weights that one unit in the last place moved: 21 pairs that noise alone separates."""

# what a run changes; the first step that differs to the bit, where within it, the setting that explains it
INJECTED = {
    "another seed": ({"seed": 1}, 1, "forward", "settings.seed"),
    "other data": ({"data_seed": 1}, 1, "batch", "settings.data_seed"),
    "a reshuffled epoch": ({"reshuffled_from": 1}, 7, "batch", None),
    "another rate from step 5": ({"changed_rate_from": 5}, 5, "learning rate", None),
    "no weight decay": ({"weight_decay": 0.0}, 2, "update or forward", "optimizer.weight_decay"),
    "another epsilon": ({"epsilon": 1e-6}, 2, "update or forward", "optimizer.epsilon"),
    "products of bf16": ({"bf16": True, "stated": {"dtype": "bfloat16"}}, 1, "forward", "settings.dtype"),
    "resumed without moments": ({"resume_at": 8, "forgets_moments": True}, 10, "update or forward", "settings.resumed"),
}


def train(folder, runs, threads=1):
    """Start the trainings in one process."""
    command = [sys.executable, str(SCRIPT), str(folder), json.dumps(runs)]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(files.ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A folder with the log of each training, by name."""
    folder, other = tmp_path_factory.mktemp("logs"), tmp_path_factory.mktemp("two-threads")
    runs = {"whole": {"save_at": 8}, "again": {}, "resumed": {"resume_at": 8}}
    runs |= {name.replace(" ", "-"): changed for name, (changed, *_) in INJECTED.items()}
    runs |= {f"noise-{number}": {"perturbed": number} for number in range(PERTURBED)}
    runs = {name: {"steps": STEPS, **changed} for name, changed in runs.items()}
    started = [train(folder, runs), train(other, {"two-threads": {"steps": STEPS}}, threads=2)]
    for process in started:
        printed, _ = process.communicate(timeout=200)
        assert process.returncode == 0, printed
    (other / "two-threads.jsonl").rename(folder / "two-threads.jsonl")
    return folder


@pytest.mark.parametrize("name", INJECTED)
def test_an_injected_difference_is_found_at_the_first_step_that_it_touches(logs, name):
    _, step, place, setting = INJECTED[name]
    changed = logs / f"{name.replace(' ', '-')}.jsonl"
    modelled = align(logs / "whole.jsonl", changed)
    measured = align(logs / "whole.jsonl", changed, [logs / "noise-1.jsonl", logs / "noise-2.jsonl"])
    assert (measured.verdict, measured.beyond.step, measured.beyond.place) == (DIFFERS, step, place)
    small = name in ("another epsilon", "no weight decay")
    assert modelled.verdict == (WITHIN if small else DIFFERS), "the model is wider than the measured noise"
    for found in (modelled, measured):
        assert (found.bit.step, found.bit.place) == (step, place)
        likely = [difference.name for difference in found.environment if difference.rank == "likely"]
        assert likely[:1] == ([] if setting is None else [setting])


@pytest.mark.parametrize("name", ["again", "resumed", "two-threads"])
def test_equal_trainings_agree_to_the_bit(logs, name):
    found = align(logs / "whole.jsonl", logs / f"{name}.jsonl")
    assert (found.verdict, found.batches_part) == (SAME, None)


def test_noise_alone_is_never_beyond_the_noise(logs):
    pairs = list(combinations(range(PERTURBED), 2))
    assert len(pairs) >= 20
    for a, b in pairs:
        third = next(number for number in range(PERTURBED) if number not in (a, b))
        paths = [logs / f"noise-{number}.jsonl" for number in (a, b, third)]
        assert align(*paths[:2]).verdict == WITHIN, (a, b)
        assert align(*paths[:2], noise=paths[2:]).verdict == WITHIN, (a, b, third)
