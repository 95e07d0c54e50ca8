"""Logs of SmolLM2-135M that transformers and PaddleNLP wrote on a CPU (data/README.md)."""

from __future__ import annotations

import pytest

from xpulab import files
from xpulab.align.compare import DIFFERS, WITHIN, align

LOGS = files.DATA / "alignment"
TORCH, MOVED = LOGS / "transformers.jsonl", LOGS / "transformers-moved.jsonl"


@pytest.mark.parametrize("noise", [[], [MOVED]], ids=["model", "measured"])
def test_transformers_and_paddlenlp_read_the_same_and_agree_within_the_noise(noise):
    found = align(TORCH, LOGS / "paddlenlp.jsonl", noise)
    assert (found.verdict, found.has_batches, found.batches_part, len(found.numbers)) == (WITHIN, True, None, 20)
    assert {quantity.name for quantity in found.quantities} == {"learning_rate", "loss", "grad_norm"}
    assert found.environment[0].name == "versions.torch" and found.environment[0].rank == "likely"


# the log; the first step that differs to the bit, where within it, the setting
CHANGED = {
    "transformers-weight-decay": (2, "update or forward", "optimizer.weight_decay"),
    "transformers-bf16": (1, "forward", "settings.dtype"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_setting_that_differs_is_found_with_torch_too(name):
    step, place, setting = CHANGED[name]
    found = align(TORCH, LOGS / f"{name}.jsonl", [MOVED])
    assert (found.verdict, found.bit.step, found.bit.place, found.environment[0].name) == (DIFFERS, step, place, setting)
    other = align(LOGS / "paddlenlp.jsonl", LOGS / f"{name}.jsonl")
    assert (other.verdict, other.environment[0].rank) == (DIFFERS, "likely")
