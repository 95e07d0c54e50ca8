"""The tiny decoders that the notebooks of the release train, and the settings of PaddleNLP's trainers for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

VOCABULARY, WIDTH, INNER, HEADS = 40, 16, 24, 4
"""Words, features of a token, features inside of a block, heads of attention."""

FAMILIES = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
"""By name the classes of configuration and model."""

Weights = dict[str, np.ndarray]


def new_network(family: Any, rng: np.random.Generator, **options: Any) -> tuple[Any, Any, Weights]:
    """A model of two layers with random weights, its configuration, and the weights in double precision, by name.

    family: a value of FAMILIES. options: of its configuration. No weight is such that a gradient vanishes.
    """
    kind, model = family
    sizes = {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": INNER, "num_attention_heads": HEADS}
    config = kind(**{**sizes, "num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 32, **options})
    with paddle.utils.unique_name.guard():
        network = model(config)
    for name, weight in network.named_parameters():
        drawn = rng.standard_normal(weight.shape)
        if "norm" in name:
            drawn = 1 + 0.2 * drawn
        elif name.endswith("bias"):
            drawn = 0.3 * drawn
        elif "embed_tokens" not in name:
            drawn = drawn / np.sqrt(weight.shape[0])
        weight.set_value(drawn.astype("float32"))
    return network, config, {name: weight.numpy().astype("float64") for name, weight in network.named_parameters()}


def settings(folder: Any, device: str, seed: int, **options: Any) -> dict[str, Any]:
    """The arguments of TrainingArguments or SFTConfig: each step is logged, and nothing is reported or saved.

    options: further ones, or others in their place.
    """
    quiet = {"logging_steps": 1, "save_strategy": "no", "report_to": [], "disable_tqdm": True}
    return {"output_dir": str(folder), "device": device, "seed": seed, **quiet, **options}
