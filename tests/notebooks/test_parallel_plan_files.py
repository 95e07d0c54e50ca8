"""The training script of 11_parallel_plan, as a reader runs it: without this package, on one process and on two ranks."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from xpulab import files, ranks
from xpulab.chapters.parallel_plan import plan_files
from xpulab.chapters.shared import take_home
from xpulab.ranks import environment

pytestmark = [pytest.mark.notebooks, pytest.mark.usefixtures("in_fork_server")]

SCRIPT = take_home.script_path("parallel")

Train = Callable[..., list[float]]
Forked = Callable[..., subprocess.CompletedProcess]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text to train on."""
    folder = tmp_path_factory.mktemp("text")
    rows = files.load_jsonl(files.data("instructions", "train.jsonl"), ("question", "answer"))
    lines = [json.dumps({"text": f"{row['question']} {row['answer']}"}) for row in rows]
    (folder / "train.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


def write_config(folder: Path, text: Path, device: str, **options: object) -> str:
    """Write a small configuration into the folder; returns the name of its file."""
    config = {
        "model_name_or_path": str(files.data("models", "tiny-qwen2-sft", "config.json").parent),
        "continue_training": True,
        "input_dir": str(text),
        "max_seq_length": 32,
        "output_dir": "out",
        "device": device,
        "max_steps": 3,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "do_train": True,
    }
    (folder / "config.json").write_text(json.dumps({**config, **options}), encoding="utf-8")
    return "config.json"


def losses_in(folder: Path) -> list[float]:
    written = folder / "out" / "losses.jsonl"
    losses = [json.loads(line)["loss"] for line in written.read_text(encoding="utf-8").splitlines()]
    assert len(losses) == 3, "each rank has trained alone"
    return losses


@pytest.fixture(scope="module")
def train(forked: Forked, text: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """train(device, ranks, **options): the losses of three steps, in a folder of its own."""

    def losses(device: str, n: int, **options: object) -> list[float]:
        folder = tmp_path_factory.mktemp("trained")
        done = forked(SCRIPT, write_config(folder, text, device, **options), cwd=folder, n=n, device=device)
        assert done.returncode == 0, done.stdout[-3000:]
        return losses_in(folder)

    return losses


@pytest.fixture(scope="module")
def data_parallel(train: Train) -> list[float]:
    """The losses of data parallelism on two simulated cards."""
    return train("sim", 2)


def test_one_process_learns_and_saves_the_model(forked: Forked, text: Path, tmp_path: Path):
    done = forked(SCRIPT, write_config(tmp_path, text, "cpu", save_strategy="steps"), cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    losses = losses_in(tmp_path)

    assert len(losses) == 3 and all(map(math.isfinite, losses))
    assert losses[-1] < losses[0]
    assert {"config.json", "tokenizer_config.json"} < {path.name for path in (tmp_path / "out").iterdir()}
    assert list((tmp_path / "out").glob("model_state*")) or list((tmp_path / "out").glob("*.safetensors"))


def test_as_a_reader_starts_it_a_sharded_optimizer_makes_the_steps_of_data_parallelism(
    text: Path, tmp_path: Path, data_parallel: list[float], as_a_reader: Callable[..., str]
):
    config = write_config(tmp_path, text, "cpu", sharding="stage1", sharding_parallel_degree=2)
    launch = [
        "python",
        "-m",
        "paddle.distributed.launch",
        "--nproc_per_node",
        "2",
        "--backend",
        "gloo",
        "--host",
        environment.HOST,
    ]
    as_a_reader([*launch, SCRIPT, config], tmp_path, PORT_RANGE=environment.range_of_ports())
    assert losses_in(tmp_path) == pytest.approx(data_parallel, rel=1e-4)


def test_tensor_parallelism_makes_the_steps_of_a_pipeline_on_two_simulated_cards(train: Train):
    cut = train("sim", 2, tensor_parallel_degree=2, gradient_accumulation_steps=2)

    assert cut[-1] < cut[0]
    assert cut == pytest.approx(train("sim", 2, pipeline_parallel_degree=2, gradient_accumulation_steps=2), rel=1e-4)


def test_what_a_device_cannot_do_is_refused_in_one_sentence(forked: Forked, text: Path, tmp_path: Path):
    config = write_config(tmp_path, text, "cpu", tensor_parallel_degree=2, bf16=True, fp16_opt_level="O2")
    done = forked(SCRIPT, config, cwd=tmp_path)

    assert done.returncode == 1
    *_, last = done.stdout.strip().splitlines()
    assert last.startswith("This training is refused. 1 cards are no multiple of 2")
    assert "tensor_parallel_degree 2 on cpu" in last and "bfloat16" in last


def test_paddlenlp_parses_a_configuration_and_each_launch_file_has_its_own(tmp_path: Path):
    config = {"model_name_or_path": "m", "input_dir": "data", "output_dir": "out", "tensor_parallel_degree": 4}
    config |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "report_to": "none"}
    plans = {"1-card": {**config, "tensor_parallel_degree": 1}, "8-cards": config, "2-nodes": config}

    names = [path.name for path in plan_files.write(tmp_path, plans, "xpu")]

    assert names == [
        "parallel.py",
        *(f"{kind}-{plan}.{end}" for plan in plans for kind, end in (("config", "json"), ("launch", "sh"))),
    ]
    launches = {plan: (tmp_path / f"launch-{plan}.sh").read_text(encoding="utf-8") for plan in plans}
    assert [plan_files.launched_cards(launch) for launch in launches.values()] == [1, 8, 16]
    assert all(f"parallel.py config-{plan}.json" in launch for plan, launch in launches.items())
    as_text = json.dumps(json.loads((tmp_path / "config-8-cards.json").read_text(encoding="utf-8")) | {"device": "cpu"})
    (parsed,) = ranks.run(plan_files.parsed, 1, [(as_text, 8)])[0]
    assert (parsed["dp"], parsed["mp"], parsed["samples"]) == (2, 4, 8)
