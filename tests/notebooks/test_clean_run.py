"""The committed notebooks on this machine: green in every way that the README names, with the text that is committed."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from safetensors.numpy import load_file

from xpulab import files
from xpulab.devices import STANDS_FOR
from xpulab.harness.plan import make_plans
from xpulab.records import known_issues

pytestmark = pytest.mark.notebooks

SECONDS = 280
LONG_SECONDS = 1200
"""For all notebooks on two busy cores, where everything takes several times as long."""


def done(command, folder):
    """Run a command in a folder where nothing of ours lies; its output, and an error that shows it when it fails."""
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment())
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return ran.stdout


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.timeout(LONG_SECONDS)
@pytest.mark.parametrize("device", ["cpu", "sim"])
class TestTheWholeSuite:
    def test_it_is_green(self, suite, device):
        result = suite(device).result
        assert (result["green"], result["outcome"], result["device"]) == (True, "passed", device), result["notebooks"]

    def test_every_compared_check_has_a_control_that_was_rejected(self, suite, device):
        compared = [check for check in suite(device).checks.values() if check["outcome"] != "skipped"]
        assert len(compared) > 100
        assert {check["control"] for check in compared} == {"rejected"}

    def test_it_runs_every_committed_notebook(self, suite, device):
        outcomes = {notebook["name"]: notebook["outcome"] for notebook in suite(device).result["notebooks"]}
        assert outcomes == {plan.name: "passed" for plan in make_plans([], "quick")}

    def test_what_is_known_is_what_is_listed(self, suite, device, monkeypatch):
        monkeypatch.setenv(STANDS_FOR, suite(device).result["stands_for"])  # in CI it is a rehearsal
        outcomes = {name: check["outcome"] for name, check in suite(device).checks.items() if check["outcome"] != "skipped"}
        listed = {issue.check for issue in known_issues.load() if issue.applies(device)}
        assert {name for name, outcome in outcomes.items() if outcome == "known"} == listed & {*outcomes}


@pytest.mark.timeout(LONG_SECONDS)
class TestSimulatedCards:
    def test_the_report_says_that_they_were_simulated(self, suite):
        assert "simulated cards" in suite("sim").result["scope"].lower()

    def test_training_gives_the_losses_of_the_cpu_to_the_last_bit(self, suite, book_run, tmp_path):
        # these checks measure losses, so their values hold the bits of every loss
        names = ("sft.first-loss", "sft.loss-falls", "sft.trajectory")
        on_cpu, on_sim = book_run("cpu", tmp_path / "out", "02_sft").checks, suite("sim").checks
        measured = [on_cpu[name]["measured"] for name in names]
        assert [on_sim[name]["measured"] for name in names] == measured
        assert len(set(measured)) == 3


class TestOrdinaryTools:
    def test_stock_nbval_is_green_on_the_committed_notebook(self, tmp_path):
        notebook = files.NOTEBOOKS / "13_pipeline.ipynb"  # the shortest
        plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, f"--rootdir={tmp_path}"]
        assert "passed" in done([sys.executable, "-m", "pytest", *plain, "--nbval", str(notebook)], tmp_path)


class TestAModelOfOnesOwn:
    def test_papermill_fine_tunes_a_local_checkpoint_of_another_family(self, tmp_path):
        checkpoint = tmp_path / "checkpoint"
        done([sys.executable, "-c", MAKE_CHECKPOINT.format(folder=str(checkpoint))], tmp_path)
        notebook = files.NOTEBOOKS / "02_sft.ipynb"
        given = ["-p", "device", "cpu", "-p", "model", str(checkpoint)]
        done([sys.executable, "-m", "papermill", "--no-progress-bar", str(notebook), "out.ipynb", *given], tmp_path)
        shown = [
            output.data["text/plain"]
            for cell in nbformat.read(tmp_path / "out.ipynb", as_version=4).cells
            for output in cell.get("outputs", [])
            if "data" in output and "text/plain" in output.data
        ]
        assert "skipped sft.first-loss  the weights are not random, so the first loss has no closed form" in shown


class TestTheCommittedModel:
    def test_its_script_makes_it_again(self, tmp_path):
        done([sys.executable, str(files.DATA / "make_sft_model.py"), str(tmp_path / "model")], tmp_path)
        made, committed = (
            load_file(folder / "model.safetensors") for folder in (tmp_path / "model", files.DATA / "models" / "tiny-qwen2-sft")
        )
        assert made.keys() == committed.keys()
        # Another processor rounds otherwise, and a hundred steps carry that on; a different training is off by far more.
        for name, weight in committed.items():
            np.testing.assert_allclose(made[name], weight, atol=0.05, err_msg=name)


MAKE_CHECKPOINT = """
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM
from xpulab.chapters.shared import models
import paddle
paddle.seed(3)
config = LlamaConfig.from_pretrained(models.folder_of("tiny-llama"))
config.hidden_size, config.intermediate_size = 96, 160
LlamaForCausalLM.from_config(config, dtype="float32").save_pretrained(r"{folder}", safe_serialization=True)
models.new_tokenizer("tiny-llama").save_pretrained(r"{folder}")
"""
