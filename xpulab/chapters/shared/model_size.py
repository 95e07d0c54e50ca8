"""How many parameters a model has, read from its configuration before anything is loaded."""

from __future__ import annotations

from typing import Any

from paddlenlp.transformers import AutoConfig

from xpulab.chapters.shared.models import folder_of
from xpulab.reference.parallel_training import Model

TINY = 5_000_000
"""Models with fewer parameters run every case of a chapter: their states are small, and numpy follows their computations."""
NUMPY_BELOW = 1_000_000_000
"""For a model with fewer parameters numpy computes the logits and gradients of a few examples in minutes, not hours."""


def parameters_of(model: str) -> int:
    """The number of parameters of a model that `folder_of` knows; see parameters_in."""
    return parameters_in(AutoConfig.from_pretrained(folder_of(model)))


def parameters_in(config: Any) -> int:
    """The number of parameters of a decoder with this configuration, tied embeddings counted once.

    Exact for Qwen2 and Llama; other decoders have about as many.
    """
    return Model(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        vocabulary=config.vocab_size,
        tied=bool(config.tie_word_embeddings),
        qkv_bias=config.model_type == "qwen2",
    ).parameters()


def is_tiny(model: str) -> bool:
    """Whether the model has fewer parameters than TINY."""
    return parameters_of(model) < TINY
