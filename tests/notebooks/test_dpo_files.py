"""The files that a reader takes home from 04_dpo: they train without xpulab, alone and on two ranks, as PaddleNLP would."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import make_dataclass
from pathlib import Path
from typing import Optional

import pytest
from paddlenlp.trainer import PdArgumentParser, TrainingArguments

from xpulab import files, sim
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

SECONDS = 120
PAIRS = 12
"""Pairs of one step, on all ranks together."""
CONFIG = {
    "model_name_or_path": "model",
    "train_dataset_path": "train.jsonl",
    "dev_dataset_path": "dev.jsonl",
    "output_dir": "trained",
    "max_steps": 2,
    "per_device_train_batch_size": PAIRS,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "constant",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "unified_checkpoint": True,
    "seed": 0,
    "beta": 0.5,
}

OF_RUN_DPO = {
    "DPOModelArgument": {
        "model_name_or_path": str,
        "tokenizer_name_or_path": Optional[str],  # noqa: UP045 - PdArgumentParser does not read "str | None"
        "flash_mask": bool,
        "weight_quantize_algo": str,
        "fuse_attention_qkv": bool,
        "fuse_attention_ffn": bool,
        "lora_rank": int,
        "lora_path": str,
        "rslora": bool,
        "lora_plus_scale": float,
        "lora_alpha": int,
        "rslora_plus": bool,
        "use_quick_lora": bool,
    },
    "DPODataArgument": {
        "train_dataset_path": str,
        "dev_dataset_path": str,
        "max_seq_len": int,
        "max_prompt_len": int,
        "greedy_zero_padding": bool,
        "lazy": bool,
    },
    "DPOConfig": {
        "beta": float,
        "simpo_gamma": float,
        "label_smoothing": float,
        "loss_type": str,
        "pref_loss_ratio": float,
        "sft_loss_ratio": float,
        "dpop_lambda": float,
        "ref_model_update_steps": int,
        "reference_free": bool,
        "lora": bool,
    },
}
"""The names and types of the arguments of run_dpo.py, which the wheel lacks.

Source: PaddleNLP 9f438b8a, llm/alignment/dpo/dpo_argument.py, which like the wheel 3.0.0b4 has llmmetaclass.
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that the chapter writes, with a tiny model and its pairs."""
    folder = tmp_path_factory.mktemp("dpo")
    take_home.write(folder, script="dpo", config=CONFIG, device="cpu")
    shutil.copytree(files.DATA / "models" / "tiny-qwen2-sft", folder / "model")
    for split, name in (("train", "train.jsonl"), ("heldout", "dev.jsonl")):
        shutil.copyfile(files.data("preferences", f"{split}.jsonl"), folder / name)
    return folder


def run(command, folder, **variables):
    """Run a command in the folder, without this project's path; returns what it printed."""
    bin_of_python = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, "OMP_NUM_THREADS": "1", "PATH": f"{bin_of_python}:{kept['PATH']}", **variables}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def losses_in(folder):
    return [entry["loss"] for entry in json.loads((folder / "history.json").read_text())["training"]]


@pytest.fixture(scope="module")
def alone(written):
    """What the launch file for one card printed, and the losses that it wrote."""
    return run(["bash", "launch-1-card.sh"], written), losses_in(written / "trained")


def test_one_process_begins_at_ln_2_and_learns(alone):
    _, losses = alone
    assert losses[0] == pytest.approx(math.log(2), rel=1e-5)
    assert 0 < losses[1] < losses[0]


def test_one_process_saves_the_model_and_prints_answers(alone, written):
    printed, _ = alone
    assert "What does rank mean?            One process of a distributed job." in printed
    assert {"config.json", "tokenizer_config.json"} <= {path.name for path in (written / "trained").iterdir()}
    assert list((written / "trained").glob("*.safetensors"))


def test_two_ranks_on_simulated_cards_have_the_losses_of_one_process(alone, written):
    cards = {**sim.environment(2), "PADDLE_DISTRI_BACKEND": "xccl", "PADDLE_XCCL_BACKEND": "sim"}
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "logs"]
    given = ["--device", "sim", "--output_dir", "on-two", "--per_device_train_batch_size", str(PAIRS // 2)]
    run([*launch, "dpo.py", "config.json", *given], written, **cards)
    assert losses_in(written / "on-two") == pytest.approx(alone[1], rel=1e-5)


def test_the_config_has_only_arguments_of_run_dpo(written):
    parser = PdArgumentParser((*(of_run_dpo(name) for name in OF_RUN_DPO), TrainingArguments))
    model, _, loss, arguments = parser.parse_json_file(str(written / "config.json"))
    assert (model.model_name_or_path, loss.beta, arguments.max_steps, arguments.device) == ("model", 0.5, 2, "cpu")


def test_an_argument_that_run_dpo_lacks_is_noticed(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"output_dir": "out", "betta": 0.5}))
    parser = PdArgumentParser((of_run_dpo("DPOConfig"), TrainingArguments))
    with pytest.raises(ValueError, match="betta"):
        parser.parse_json_file(str(tmp_path / "config.json"))


def of_run_dpo(name):
    defaults = {str: "", int: 1, float: 1.0, bool: False}
    fields = [(field, kind, defaults.get(kind)) for field, kind in OF_RUN_DPO[name].items()]
    return make_dataclass(name, fields)
