"""The files that a reader takes home from 04_dpo: they train without xpulab, alone and on two ranks, as PaddleNLP would."""

from __future__ import annotations

import json
import math
import shutil
import sys

import pytest

from xpulab import files, sim
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

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


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that the chapter writes, with a tiny model and its pairs."""
    folder = tmp_path_factory.mktemp("dpo")
    take_home.write(folder, script="dpo", config=CONFIG, device="cpu")
    shutil.copytree(files.DATA / "models" / "tiny-qwen2-sft", folder / "model")
    for split, name in (("train", "train.jsonl"), ("heldout", "dev.jsonl")):
        shutil.copyfile(files.data("preferences", f"{split}.jsonl"), folder / name)
    return folder


def losses_in(folder):
    return [entry["loss"] for entry in json.loads((folder / "history.json").read_text())["training"]]


@pytest.fixture(scope="module")
def alone(written, as_a_reader):
    """What the launch file for one card printed, and the losses that it wrote."""
    return as_a_reader(["bash", "launch-1-card.sh"], written), losses_in(written / "trained")


def test_one_process_begins_at_ln_2_and_learns(alone):
    _, losses = alone
    assert losses[0] == pytest.approx(math.log(2), rel=1e-5)
    assert 0 < losses[1] < losses[0]


def test_one_process_saves_the_model_and_prints_answers(alone, written):
    printed, _ = alone
    assert "What does rank mean?            One process of a distributed job." in printed
    assert {"config.json", "tokenizer_config.json"} <= {path.name for path in (written / "trained").iterdir()}
    assert list((written / "trained").glob("*.safetensors"))


def test_two_ranks_on_simulated_cards_have_the_losses_of_one_process(alone, written, as_a_reader):
    cards = {**sim.environment(2), "PADDLE_DISTRI_BACKEND": "xccl", "PADDLE_XCCL_BACKEND": "sim"}
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--devices", "0,1", "--log_dir", "logs"]
    given = ["--device", "sim", "--output_dir", "on-two", "--per_device_train_batch_size", str(PAIRS // 2)]
    as_a_reader([*launch, "dpo.py", "config.json", *given], written, **cards)
    assert losses_in(written / "on-two") == pytest.approx(alone[1], rel=1e-5)


def test_on_parts_of_a_model_it_has_the_losses_of_one_process(alone, written, forked):
    given = ("--device", "sim", "--output_dir", "cut", "--tensor_parallel_degree", "2")
    done = forked("dpo.py", "config.json", *given, cwd=written, n=2, device="sim")
    assert done.returncode == 0, done.stdout[-3000:]
    assert losses_in(written / "cut") == pytest.approx(alone[1], rel=1e-5)


def test_a_run_goes_on_where_it_was_stopped_and_its_log_says_what_a_step_costs(written, forked):
    def run(*more):
        done = forked("dpo.py", "config.json", *saved, *more, "--output_dir", "stopped", cwd=written)
        assert done.returncode == 0, done.stdout[-3000:]
        return json.loads((written / "stopped" / "history.json").read_text())["training"]

    saved = ("--max_steps", "4", "--save_strategy", "steps", "--save_steps", "2", "--peak_tflops", "1")
    whole = run()
    shutil.rmtree(written / "stopped" / "checkpoint-4")
    again = run("--resume_from_checkpoint", "true")
    assert [each["loss"] for each in again] == [each["loss"] for each in whole[2:]]
    assert all(each["tokens_per_second"] > 0 and each["mfu"] > 0 and each["grad_norm"] > 0 for each in whole)


def test_conversations_train_an_adapter_until_it_stops(written, forked):
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a rank?"}]
    told, asked = {"role": "assistant", "content": "A process."}, {"role": "user", "content": "And a card?"}
    sides = {"chosen": "A device.", "rejected": "It is a device."}
    row = {name: [*turns, told, asked, {"role": "assistant", "content": text}] for name, text in sides.items()}
    (written / "chat.jsonl").write_text(20 * (json.dumps(row) + "\n"))
    of_data = ("--train_dataset_path", "chat.jsonl", "--dev_dataset_path", "chat.jsonl", "--lora", "true")
    judged = ("--evaluation_strategy", "steps", "--eval_steps", "1", "--load_best_model_at_end", "true", "--save_steps", "1")
    stops = ("--early_stopping_patience", "1", "--learning_rate", "0", "--max_steps", "6", "--save_strategy", "steps")
    done = forked("dpo.py", "config.json", *of_data, *judged, *stops, "--output_dir", "adapter", cwd=written)
    assert done.returncode == 0, done.stdout[-3000:]
    assert losses_in(written / "adapter") == pytest.approx([math.log(2)] * 2, rel=1e-5)
    assert "20 of 20 examples" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--flash_mask", "true"], "flash_mask: this script does not honour it"),
        (["--greedy_zero_padding", "true"], "greedy_zero_padding: this script does not honour it"),
        (["--longer", "shorter"], "longer: 'shorter' is unknown"),
        (["--train_dataset_path", "nowhere.jsonl"], "nowhere.jsonl: is no file"),
    ],
)
def test_what_the_script_does_not_honour_is_refused_by_name(written, arguments, message, monkeypatch):
    monkeypatch.chdir(written)
    with pytest.raises(SystemExit, match=message):
        take_home.load_script("dpo").main(["config.json", *arguments])


def test_a_pipeline_is_refused(written, forked):
    given = ("--device", "sim", "--output_dir", "staged", "--pipeline_parallel_degree", "2")
    done = forked("dpo.py", "config.json", *given, cwd=written, n=2, device="sim")
    assert done.returncode == 1
    assert "pipeline_parallel_degree: this script has no pipeline" in done.stdout
