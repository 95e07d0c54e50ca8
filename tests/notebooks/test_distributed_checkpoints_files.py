"""The script that chapter 15 writes saves on some ranks and resumes on others, without xpulab and without the notebook."""

from __future__ import annotations

import ast
import json
import sys

import nbformat
import pytest

from xpulab import files
from xpulab.chapters.shared import take_home

pytestmark = pytest.mark.notebooks

NOTEBOOK = files.NOTEBOOKS / "15_distributed_checkpoints.ipynb"
LAUNCH = ("python", "-m", "paddle.distributed.launch", "--log_dir", "log", "--nproc_per_node", "2", "--backend", "gloo")


@pytest.fixture
def home(tmp_path):
    """The folder that the chapter writes, with its own configuration and a save after every third step."""
    sources = [cell.source for cell in nbformat.read(NOTEBOOK, as_version=4).cells if cell.cell_type == "code"]
    (source,) = [source for source in sources if source.startswith("config = {")]
    config = ast.literal_eval(ast.parse(source).body[0].value)
    take_home.write(tmp_path, script="resume_anywhere", config={**config, "save_steps": 3}, device="cpu")
    return tmp_path


@pytest.fixture
def run(home, forked):
    """run(argument, ..., n=1, device="cpu", succeeds=True): the script in its folder on n ranks; what rank 0 printed."""

    def script(*arguments, succeeds=True, **place):
        done = forked("resume_anywhere.py", "config.json", *arguments, cwd=home, **place)
        assert (done.returncode == 0) is succeeds, done.stdout[-3000:]
        return done.stdout

    return script


def losses(home, folder):
    """Step to loss and number of ranks, from the log of rank 0."""
    rows = [json.loads(line) for line in (home / folder / "losses.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows}, [row["ranks"] for row in rows]


def test_two_ranks_save_and_one_continues_as_if_uninterrupted(home, run, as_a_reader):
    as_a_reader([*LAUNCH, "resume_anywhere.py", "config.json", "--max_steps", "6", "--output_dir", "moved"], home)
    run("--max_steps", "8", "--output_dir", "moved")
    run("--max_steps", "8", "--output_dir", "uninterrupted")

    moved, ranks = losses(home, "moved")
    assert ranks == [2] * 6 + [1] * 2
    assert moved == pytest.approx(losses(home, "uninterrupted")[0], abs=1e-4)
    assert moved[8] < moved[1] / 2
    assert sorted(each.name for each in (home / "moved").glob("checkpoint-*")) == ["checkpoint-6", "checkpoint-8"]


def test_one_saves_and_two_continue_on_simulated_cards(home, run):
    run("--max_steps", "4", "--device", "sim", device="sim")
    run("--max_steps", "6", "--device", "sim", device="sim", n=2)

    found, ranks = losses(home, "checkpoints")
    assert ranks == [1] * 4 + [2] * 2
    assert all(found[step + 1] < found[step] for step in range(1, 6))


def test_both_ranks_refuse_a_damaged_checkpoint_and_name_the_file(home, run):
    run("--max_steps", "3")
    (file,) = (home / "checkpoints" / "checkpoint-3").glob("*.distcp")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 64
    file.write_bytes(data)

    run("--max_steps", "6", n=2, succeeds=False)

    for rank in range(2):
        log = (home / "log" / f"workerlog.{rank}").read_text(encoding="utf-8", errors="replace")
        assert f"checkpoint-3: {file.name} has other contents" in log


def test_a_checkpoint_that_was_not_finished_is_not_resumed_from_and_is_written_again(home, run):
    run("--max_steps", "6")
    (home / "checkpoints" / "checkpoint-6" / "complete.json").unlink()

    assert "step 4, loss" in run("--max_steps", "6")
    assert (home / "checkpoints" / "checkpoint-6" / "complete.json").exists()


def test_paddlenlp_reads_the_arguments_of_the_file(home, monkeypatch):
    from paddlenlp.trainer import PdArgumentParser
    from paddlenlp.trl import DataConfig, ModelConfig, SFTConfig

    monkeypatch.setattr(sys, "argv", ["run_finetune.py", str(home / "config.json")])
    read = PdArgumentParser((ModelConfig, DataConfig, SFTConfig)).parse_json_file_and_cmd_lines()

    for name, value in json.loads((home / "config.json").read_text(encoding="utf-8")).items():
        (owner,) = [each for each in read if hasattr(each, name)]
        assert getattr(owner, name) == value, name


def test_an_argument_that_would_change_the_format_is_refused(home, run):
    config = json.loads((home / "config.json").read_text())
    (home / "config.json").write_text(json.dumps({**config, "unified_checkpoint": False}))
    run(succeeds=False)
