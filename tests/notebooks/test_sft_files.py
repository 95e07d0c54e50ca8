"""The files that chapter 02 writes train without xpulab and without the notebook, and PaddleNLP reads their configuration."""

from __future__ import annotations

import json
import math
import re
import runpy
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from safetensors.numpy import load_file

from tests.notebooks.test_chat_data import rows_and_growth
from xpulab import files

pytestmark = pytest.mark.notebooks

NOTEBOOK = files.NOTEBOOKS / "02_sft.ipynb"
STEPS = 3


@pytest.fixture
def home(tmp_path):
    """The folder that the chapter's own cells write, with the settings of level quick."""
    from xpulab.chapters.shared import models, take_home

    names = {
        "seed": 0,
        "model": "tiny-qwen2",
        "folder": models.folder_of("tiny-qwen2"),
        "train": models.instructions("train"),
        "heldout": models.instructions("heldout"),
        "here": SimpleNamespace(name="cpu"),
        "files_to": str(tmp_path / "home"),
        **{"json": json, "Path": Path, "tempfile": tempfile, "models": models, "take_home": take_home},
    }
    sources = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    for first in ("settings = {", "home = Path("):
        (source,) = [source for source in sources if any(line.startswith(first) for line in source.splitlines())]
        exec(source, names)
    return names["home"]


def losses_in(printed):
    return [float(loss) for loss in re.findall(r"^log \d+ loss (\S+)$", printed, re.MULTILINE)]


def test_the_script_has_the_first_losses_of_the_notebook_and_saves_the_model(home, as_a_reader):
    printed = as_a_reader(["python", "sft.py", "config.json", "--max_steps", str(STEPS)], home)

    losses = losses_in(printed)
    stored = json.loads((files.DATA / "baselines" / "cpu.json").read_text(encoding="utf-8"))["baselines"]
    (entry,) = [
        entry
        for baseline in stored[:1]
        for entry in baseline["entries"]
        if (entry["check"], entry["case"]) == ("sft.baseline", "losses")
    ]
    assert losses == pytest.approx(entry["value"][:STEPS], abs=1e-4)
    assert losses[-1] < losses[0]
    assert "lm_head.weight" in load_file(home / "trained" / "model.safetensors")
    assert "saved in trained" in printed


def test_two_processes_train_on_simulated_cards(home, forked):
    done = forked("sft.py", "config.json", "--max_steps", str(STEPS), "--device", "sim", cwd=home, n=2, device="sim")

    log = done.stdout
    assert done.returncode == 0, log[-3000:]
    losses = losses_in(log)
    assert len(losses) == STEPS
    assert all(map(math.isfinite, losses))
    assert losses[0] == pytest.approx(math.log(512), abs=0.05)
    assert losses[-1] < losses[0]
    assert "world_size                    : 2" in log


def norms_in(printed):
    return [float(norm) for norm in re.findall(r"grad_norm: ([\d.e+-]+)", printed)]


@pytest.mark.parametrize(
    "arguments",
    [("--sharding", "stage1", "--gradient_accumulation_steps", "1"), ("--tensor_parallel_degree", "2")],
    ids=lambda arguments: arguments[0],
)
def test_the_norm_of_gradients_is_that_of_one_card(home, forked, arguments):
    from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(files.DATA / "models" / "tiny-qwen2"))
    AutoModelForCausalLM.from_config(config, dtype="float32").save_pretrained(str(home / "model"), safe_serialization=True)
    of_model = ("--model_name_or_path", "model", "--tokenizer_name_or_path", str(files.DATA / "models" / "tiny-qwen2"))
    step = (
        *of_model,
        "--continue_training",
        "true",
        "--max_steps",
        "2",
        "--per_device_train_batch_size",
        "4",
        "--gradient_accumulation_steps",
        "2",
        "--device",
        "sim",
    )
    given = ("sft.py", "config.json", *step, "--max_grad_norm", "0.5", "--logging_steps", "1", "--output_dir")
    one = forked(*given, "one", cwd=home, device="sim")
    two = forked(*given, "two", *arguments, cwd=home, n=2, device="sim")
    assert (one.returncode, two.returncode) == (0, 0), two.stdout[-3000:]
    assert len(norms_in(one.stdout)) == 2
    assert norms_in(two.stdout) == pytest.approx(norms_in(one.stdout), rel=1e-4)


def test_visualdl_gets_each_log(home, forked):
    from visualdl import LogReader

    given = ("--max_steps", str(STEPS), "--report_to", "visualdl", "--logging_dir", "runs", "--logging_steps", "1")
    done = forked("sft.py", "config.json", *given, cwd=home)
    assert done.returncode == 0, done.stdout[-3000:]
    (events,) = (home / "runs").rglob("vdlrecords.*.log")
    reader = LogReader(file_path=str(events))
    shown = {name: [point.value for point in reader.get_data("scalar", name)] for name in reader.get_tags()["scalar"]}
    assert shown["train/loss"] == pytest.approx(losses_in(done.stdout), abs=1e-5)
    assert len(shown["train/grad_norm"]) == len(shown["train/tokens_per_second"]) == STEPS


def test_data_may_be_folders_of_files_as_run_finetune_reads_them(home, forked):
    for name in ("train", "dev"):
        (home / "data" / name).mkdir()
        (home / "data" / f"{name}.json").rename(home / "data" / name / "part-0.json")
    done = forked("sft.py", "config.json", "--max_steps", "1", cwd=home)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "held-out loss" in done.stdout


def test_a_file_of_a_gigabyte_is_read_in_the_memory_of_its_rows_numbers(tmp_path):
    count, rows, grown = rows_and_growth(tmp_path, 1_000_000_000)
    assert rows == count
    assert grown < 64, grown  # MiB; eight bytes for each row


def test_paddlenlp_reads_the_arguments_of_the_file(home, monkeypatch):
    from paddlenlp.trainer import PdArgumentParser
    from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig

    monkeypatch.setattr(sys, "argv", ["run_finetune.py", str(home / "config.json")])
    # llm/run_finetune.py has two more dataclasses; they are not in the wheel, and no argument of the file belongs to them
    read = PdArgumentParser((ModelConfig, DataConfig, SFTConfig)).parse_json_file_and_cmd_lines()

    written = json.loads((home / "config.json").read_text(encoding="utf-8"))
    for name, value in written.items():
        (owner,) = [each for each in read if hasattr(each, name)]
        seen = getattr(owner, name)
        assert getattr(seen, "value", seen) == ([] if name == "report_to" else value), name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--longer", "shorter"], "longer: 'shorter' is unknown; choose"),
        (["--use_ssa", "true"], "use_ssa: this script does not honour it"),
        (["--reft", "true"], "reft: this script does not honour it"),
        (["--src_length", "8"], "src_length: this script does not honour it"),
        (["--dataset_name_or_path", "nowhere"], "nowhere: has neither train.json nor train.jsonl"),
    ],
)
def test_what_the_script_does_not_honour_is_refused_by_name(home, arguments, message, monkeypatch):
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)
    monkeypatch.setattr(sys, "argv", ["sft.py", "config.json", *arguments])
    with pytest.raises(SystemExit, match=message):
        runpy.run_path(str(home / "sft.py"))["main"]()
