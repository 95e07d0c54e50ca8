"""A chapter trains as long as suits the size of its model, and says beforehand what it needs."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from xpulab.chapters.shared import training_size
from xpulab.errors import InputError

SMOLLM2 = SimpleNamespace(
    model_type="llama",
    vocab_size=49152,
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    tie_word_embeddings=True,
)
HUGE = SimpleNamespace(**{**vars(SMOLLM2), "num_hidden_layers": 3_000_000})


def test_the_number_of_weights_follows_from_the_configuration():
    assert training_size.parameters_in(SMOLLM2) == 134_515_008


@pytest.mark.parametrize("chapter", ["sft", "lora"])
def test_a_model_that_does_not_fit_is_refused(chapter):
    with pytest.raises(InputError, match="GB of memory"):
        training_size.choose(chapter, HUGE, "quick")
