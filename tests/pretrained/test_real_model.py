"""The prepared SmolLM2 is the model that it is said to be: it answers a question of general knowledge, in its chat template."""

from __future__ import annotations

import pytest

from xpulab.chapters.first_lora import chat_data
from xpulab.chapters.shared import models
from xpulab.pretrained.prepare import find

pytestmark = pytest.mark.real

MODEL = "smollm2-135m"


@pytest.fixture
def prepared():
    if not find(MODEL):
        pytest.skip(f"{MODEL} is not prepared on this machine; xpulab model {MODEL} fetches it")


def answer(model):
    network, tokenizer = models.new_model(model, 0), models.new_tokenizer(model)
    network.eval()
    text = chat_data.chat_prompt(tokenizer, "What is the capital of France?")
    asked = tokenizer(text, add_special_tokens=False, return_attention_mask=True, return_tensors="pd")
    found, _ = network.generate(
        input_ids=asked["input_ids"],
        attention_mask=asked["attention_mask"],
        max_new_tokens=12,
        decode_strategy="greedy_search",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return tokenizer.decode(found[0].tolist(), skip_special_tokens=True).strip()


def test_it_answers_and_the_stand_in_does_not(prepared):
    assert models.chosen(MODEL).is_real
    assert answer(MODEL) == "The capital of France is Paris."
    assert "Paris" not in answer(models.STAND_IN)  # control
