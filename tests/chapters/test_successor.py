"""Chapter 19's stored numbers: of the weights that the chapter writes, in the layouts that it names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xpulab import files
from xpulab.chapters.paddleformers import moved, same_model
from xpulab.errors import InputError
from xpulab.records import environments


def stored():
    return json.loads(files.data("comparison", "successor.json").read_text(encoding="utf-8"))


def test_they_were_computed_with_the_weights_that_the_chapter_writes():
    known = moved.numbers(same_model.digest(same_model.weights()))
    assert known.paddlenlp_logits.shape == known.transformers_logits.shape == (len(same_model.PROMPTS), 512)
    assert len(known.sft_losses) == same_model.SFT["max_steps"]


def test_other_weights_are_refused_with_the_command_that_computes_again():
    other = {**same_model.weights(), "lm_head.weight": np.zeros((512, 64), "float32")}
    with pytest.raises(InputError, match=r"successor\.json: was computed with other weights; data/README\.md says how"):
        moved.numbers(same_model.digest(other))


def test_this_environment_is_the_usual_one_and_the_package_makes_the_other(monkeypatch):
    assert environments.present() == ""
    monkeypatch.setattr(environments, "PACKAGES", {"formers": "numpy"})
    assert environments.present() == "formers"
