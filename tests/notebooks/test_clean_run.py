"""The committed notebooks on this machine: green by every road that the README names, with the text that is committed."""

from __future__ import annotations

import os
import subprocess
import sys

import nbformat
import numpy as np
import pytest
from safetensors.numpy import load_file

from xpulab import files
from xpulab.records import known_issues

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


ONLY_AT_STANDARD = {"checkpoint.float8-alone"}
"""Checks whose known defects level quick does not meet."""


def listed(device):
    """The names of the checks that are listed as failing on this device."""
    return {issue.check for issue in known_issues.load() if issue.applies(device)} - ONLY_AT_STANDARD


def known_in(outcome):
    """The names of the checks of a run that are known to fail."""
    return {
        check["name"] for notebook in outcome.result["notebooks"] for check in notebook["checks"] if check["outcome"] == "known"
    }


@pytest.mark.timeout(LONG_SECONDS)
class TestTheWholeSuite:
    @pytest.fixture(scope="class")
    def outcome(self, run_notebooks):
        return run_notebooks()

    def test_it_is_green(self, outcome):
        assert (outcome.exit_code, outcome.result["outcome"]) == (0, "passed"), outcome.printed

    def test_every_compared_check_has_a_control_that_was_rejected(self, outcome):
        checks = [check for notebook in outcome.result["notebooks"] for check in notebook["checks"]]
        compared = [check for check in checks if check["outcome"] != "skipped"]
        assert compared
        assert {check["control"] for check in compared} == {"rejected"}

    def test_it_runs_every_committed_notebook(self, outcome):
        names = [notebook["name"] for notebook in outcome.result["notebooks"]]
        assert names == sorted(path.stem for path in files.NOTEBOOKS.glob("*.ipynb"))

    def test_what_is_known_is_what_is_listed(self, outcome):
        assert known_in(outcome) == listed("cpu")


@pytest.mark.timeout(LONG_SECONDS)
class TestTheWholeSuiteOnSimulatedCards:
    @pytest.fixture(scope="class")
    def outcome(self, run_notebooks):
        return run_notebooks(device="sim")

    def test_it_is_green(self, outcome):
        assert (outcome.exit_code, outcome.result["outcome"]) == (0, "passed"), outcome.printed

    def test_every_notebook_says_that_it_ran_there(self, outcome):
        assert {notebook["outcome"] for notebook in outcome.result["notebooks"]} == {"passed"}
        assert outcome.result["device"] == "sim" and "simulated cards" in outcome.printed

    def test_what_is_known_is_what_is_listed(self, outcome):
        assert known_in(outcome) == listed("sim")

    def test_training_gives_the_losses_of_the_cpu_to_the_last_bit(self, outcome, run_notebooks):
        # the bits of every loss stand in the verdict's table only through these checks, which measure losses
        measured = {}
        for device, each in (("sim", outcome), ("cpu", run_notebooks("01_sft"))):
            checks = {check["name"]: check["measured"] for check in each.notebook("01_sft")["checks"]}
            measured[device] = {name: checks[name] for name in ("sft.first-loss", "sft.loss-falls", "sft.trajectory")}
        assert measured["sim"] == measured["cpu"]
        assert len(set(measured["cpu"].values())) == 3


class TestOrdinaryTools:
    def test_stock_nbval_is_green_on_the_committed_notebook(self, tmp_path):
        notebook = files.NOTEBOOKS / "01_sft.ipynb"
        plain = ["-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, f"--rootdir={tmp_path}"]
        assert "passed" in done([sys.executable, "-m", "pytest", *plain, "--nbval", str(notebook)], tmp_path)


class TestAModelOfOnesOwn:
    def test_papermill_fine_tunes_a_local_checkpoint_of_another_family(self, tmp_path):
        checkpoint = tmp_path / "checkpoint"
        done([sys.executable, "-c", MAKE_CHECKPOINT.format(folder=str(checkpoint))], tmp_path)
        notebook = files.NOTEBOOKS / "01_sft.ipynb"
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
from xpulab.notebook import models
import paddle
paddle.seed(3)
config = LlamaConfig.from_pretrained(models.folder_of("tiny-llama"))
config.hidden_size, config.intermediate_size = 96, 160
LlamaForCausalLM.from_config(config, dtype="float32").save_pretrained(r"{folder}", safe_serialization=True)
models.new_tokenizer("tiny-llama").save_pretrained(r"{folder}")
"""
