"""Chapter 19's stored numbers: of the weights that the chapter writes, in the layouts that it names."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pytest

from xpulab import files
from xpulab.chapters.paddleformers import moved, same_model
from xpulab.errors import InputError
from xpulab.records import environments


def stored():
    return json.loads(files.data("comparison", "successor.json").read_text(encoding="utf-8"))


def test_they_fit_their_schema():
    jsonschema.validate(stored(), json.loads(files.data("schema", "successor.schema.json").read_text(encoding="utf-8")))


def test_they_were_computed_with_the_weights_that_the_chapter_writes():
    known = moved.numbers(same_model.digest(same_model.weights()))
    assert known.paddlenlp_logits.shape == known.transformers_logits.shape == (len(same_model.PROMPTS), 512)
    assert len(known.sft_losses) == same_model.SFT["max_steps"]


def test_other_weights_are_refused_with_the_command_that_computes_again():
    other = {**same_model.weights(), "lm_head.weight": np.zeros((512, 64), "float32")}
    with pytest.raises(InputError, match=r"successor\.json: was computed with other weights; run tools/successor_numbers\.py"):
        moved.numbers(same_model.digest(other))


def test_paddlenlp_stores_these_names_and_shapes_and_bits():
    ours, theirs = moved.as_paddlenlp_stores(same_model.weights()), stored()["paddlenlp"]["layout"]
    assert {name: list(value.shape) for name, value in ours.items()} == theirs["shapes"]
    assert same_model.digest(ours) == theirs["sha256"] != same_model.digest(same_model.weights())


def test_each_old_name_is_paddlenlps():
    assert moved.RENAMED.keys() <= set(stored()["paddlenlp"]["arguments"])


def test_this_environment_is_the_usual_one_and_the_package_makes_the_other(monkeypatch):
    assert environments.present() == ""
    monkeypatch.setattr(environments, "PACKAGES", {"formers": "numpy"})
    assert environments.present() == "formers"


def test_the_package_is_named_in_one_place_of_the_code():
    name = environments.SUCCESSOR
    code = [*files.ROOT.glob("xpulab/chapters/paddleformers/*.py"), *files.ROOT.glob("xpulab/records/environments.py")]
    lines = [line for path in code for line in path.read_text(encoding="utf-8").splitlines() if f'"{name}' in line]
    assert lines == [f'SUCCESSOR = "{name}"']
