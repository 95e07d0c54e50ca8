"""The configurations of real models are legal, below nine tenths of a card, and those of the files and of docs/choose.md."""

from __future__ import annotations

import importlib
import json

import pytest

from xpulab import files
from xpulab.chapters.shared import configurations
from xpulab.errors import InputError
from xpulab.reference import cost

FITS = configurations.all_fits()


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.name)
def test_each_configuration_is_legal_and_below_nine_tenths_of_the_card(fit):
    given, model = configurations.stored()[fit.name], configurations.MODELS[fit.job.model]
    degrees = cost.Degrees(
        sharding=given["sharding_parallel_degree"], mp=given["tensor_parallel_degree"], pp=given["pipeline_parallel_degree"]
    )
    rows = given["per_device_train_batch_size"] * given["gradient_accumulation_steps"] * degrees.sharding
    training = cost.Training(
        given["max_length"], rows, recompute=given["recompute"], stored=cost.PLAIN_NORM, lora_rank=given.get("lora_rank", 0)
    )
    assert (degrees.cards, rows) == (fit.machine.cards, 32)
    assert cost.constraint_violations(model, training, degrees) == []
    assert cost.memory(model, training, degrees).total < 0.9 * fit.machine.card_gib * 2**30


def test_files_and_page_are_what_the_tool_writes(monkeypatch):
    monkeypatch.syspath_prepend(str(files.ROOT / "tools"))
    for name, text in importlib.import_module("make_configurations").texts().items():
        assert (files.ROOT / name).read_text(encoding="utf-8") == text, f"{name}: run tools/make_configurations.py"
    assert set(configurations.stored()) == {fit.name for fit in FITS}
    assert len(configurations.page()) == len(FITS)


def test_an_adapter_needs_the_memory_of_its_own_parameters_only():
    model, one = configurations.MODELS["Qwen2.5-7B"], cost.Degrees()
    full, lora = (cost.memory(model, cost.Training(4096, 1, lora_rank=rank), one) for rank in (0, 32))
    assert lora.gradients == 2 * model.adapter_parameters(32) and lora.optimizer == 6 * lora.gradients
    assert lora.parameters == full.parameters + lora.gradients and lora.activations == full.activations


def test_what_fits_nowhere_is_refused():
    with pytest.raises(InputError, match=r"Qwen2.5-72B, full: no degrees fit on 8 cards of 80 GiB"):
        configurations.chosen(configurations.Job("Qwen2.5-72B", "full"), configurations.MACHINES["8 cards of 80 GiB"])


def test_what_is_taken_home_starts_all_cards_with_its_configuration(tmp_path):
    written = {path.name: path.read_text() for path in configurations.write(tmp_path, "Qwen2.5-14B, LoRA", "gpu")}
    assert {"lora.py", "sft.py", "chat_data.py", "launch-8-cards.sh", "launch-2-nodes.sh"} <= set(written)
    assert "lora.py config-2-nodes.json" in written["launch-2-nodes.sh"]
    config = json.loads(written["config-2-nodes.json"])
    assert (config["device"], config["sharding_parallel_degree"], config["learning_rate"]) == ("gpu", 16, 1e-4)
    assert len(list((tmp_path / "configurations").iterdir())) == len(FITS)
