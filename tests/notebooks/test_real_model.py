"""Chapters with a pretrained model: green on the CPU and on simulated cards, and the faults of chapter 01 are detected with it.

Run with `bash env/test.sh -m real`, after `xpulab model smollm2-135m`. Without the model they are skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xpulab import files, sim
from xpulab.chapters.first_lora import faults as first_lora
from xpulab.chapters.first_lora import pretrained_faults as pretrained
from xpulab.faults.catalogue import faults_in
from xpulab.faults.selftest import trials
from xpulab.harness.fork_server import kernel_environment
from xpulab.pretrained.prepare import find

MODEL = "smollm2-135m"
SECONDS = 1500
"""Several times what a chapter takes on two idle cores."""

pytestmark = [pytest.mark.real, pytest.mark.timeout(SECONDS + 60)]

CHAPTERS = ("01_first_lora", "02_sft", "03_lora", "04_dpo", "06_checkpoints")


@pytest.fixture(scope="module")
def folder() -> str:
    """The prepared model's folder, in the cache of this machine."""
    prepared = find(MODEL)
    if prepared is None:
        pytest.skip(f"{MODEL} is not prepared: run xpulab model {MODEL}")
    return str(prepared)


@pytest.mark.parametrize("device", ["cpu", "sim"])
@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_is_green_with_the_model(chapter: str, device: str, folder: str, tmp_path: Path):
    notebook, executed = files.NOTEBOOKS / f"{chapter}.ipynb", tmp_path / "executed.ipynb"
    model = MODEL if chapter == "01_first_lora" else folder
    given = ["-p", "device", device, "-p", "model", model]
    simulated = sim.environment(1) if device == "sim" else {}
    variables = {**os.environ, **simulated, "XPULAB_MODELS": str(Path(folder).parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(notebook), str(executed), *given]
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("fault", [*faults_in(first_lora), *faults_in(pretrained)], ids=lambda fault: fault.name)
def test_a_fault_is_detected_with_the_model(fault, folder: str):
    with kernel_environment("cpu") as environment:
        variables = {**environment, "XPULAB_MODELS": str(Path(folder).parent)}
        (trial,) = trials([(fault, fault.level)], 1, variables)
    assert trial.missed is None, trial
