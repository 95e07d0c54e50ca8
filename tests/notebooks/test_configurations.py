"""Each configuration of data/take_home trains two steps on simulated cards, with its degrees and a small model."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from xpulab.chapters.shared import configurations, launched, models

pytestmark = [pytest.mark.notebooks, pytest.mark.usefixtures("in_fork_server"), pytest.mark.timeout(600)]

CARDS = 8
"""Of this test: two nodes are started as one, with half of their sharding."""
SMALLER = {"max_length": 64, "max_steps": 2, "logging_steps": 1, "eval_steps": 2, "save_steps": 2}
LACKS = {"use_flash_attention": False, "max_grad_norm": 0.0}
"""What simulated cards lack: the kernel, and in Paddle 3.3.1 clipping of bf16 gradients on any custom device (chapter 12)."""
NO_BF16 = {"bf16": False, "fp16_opt_level": "O1"}
"""With tensor parallelism: the kernels of simulated cards that it needs are those of float32."""


def model_of(name):
    """A model with the heads and key heads of a real one, two layers and a width of four for each head."""
    real = configurations.MODELS[name]
    return replace(real, layers=2, hidden=4 * real.heads, intermediate=2 * real.heads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with conversations and a small model of each size, with random weights."""
    from paddlenlp.transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    made = tmp_path_factory.mktemp("configurations")
    source = models.folder_of("tiny-qwen2")
    for model in configurations.MODELS:
        config = AutoConfig.from_pretrained(source)
        small = model_of(model)
        heads = {"num_attention_heads": small.heads, "num_key_value_heads": small.kv_heads, "num_hidden_layers": small.layers}
        config.update({**heads, "hidden_size": small.hidden, "intermediate_size": small.intermediate})
        AutoModelForCausalLM.from_config(config, dtype="float32").save_pretrained(str(made / model), safe_serialization=True)
        AutoTokenizer.from_pretrained(source).save_pretrained(str(made / model))
    for name, split in (("train", "train"), ("dev", "heldout")):
        rows = [json.dumps({"messages": turns(row)}) + "\n" for row in models.instructions(split)]
        (made / f"{name}.jsonl").write_text("".join(rows * 4 if split == "train" else rows[:8]), encoding="utf-8")
    return made


def turns(row):
    return [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]


@pytest.mark.parametrize("fit", configurations.all_fits(), ids=lambda fit: fit.name)
def test_it_starts_with_its_degrees_and_trains_two_steps(folder, tmp_path, fit):
    nodes = fit.machine.cards // CARDS
    given = configurations.stored()[fit.name] | SMALLER | LACKS
    given |= {"model_name_or_path": str(folder / fit.job.model), "dataset_name_or_path": str(folder), "device": "sim"}
    given |= {"sharding_parallel_degree": fit.degrees.sharding // nodes}
    given |= NO_BF16 if fit.degrees.mp > 1 else {}
    (tmp_path / "config.json").write_text(json.dumps(given), encoding="utf-8")
    output = str(tmp_path / "trained")
    run = launched.train(fit.job.script, tmp_path / "config.json", CARDS, "sim", output_dir=output, logging_dir=output)
    assert len(run.losses) == 2 and all(map(math.isfinite, run.losses)) and math.isfinite(run.heldout)
    columns = {shape[1] for rank in run.held for name, shape in rank["shapes"].items() if name.endswith("q_proj.weight")}
    assert columns == {4 * configurations.MODELS[fit.job.model].heads // fit.degrees.mp}
    if fit.job.method == "LoRA":
        of_adapter = [math.prod(shape) for name, shape in run.held[0]["shapes"].items() if "lora_" in name]
        assert sum(of_adapter) == model_of(fit.job.model).adapter_parameters(configurations.RANK, fit.degrees.mp)
