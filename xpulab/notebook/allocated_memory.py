"""Train tiny Llamas and measure how much memory they allocate on a card."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import paddle
from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM

from xpulab.reference.cost import Model

MICRO_BATCHES = 2


def allocated_memory(trainings: Mapping[str, tuple[Model, Mapping[str, Any]]]) -> dict[str, tuple[int, int]]:
    """On a rank: name to (bytes between steps, peak in a step), each without what was allocated before.

    trainings: the model, and how it is trained: micro_batch, sequence and perhaps recompute, as in cost.Training.
    """
    place, found = paddle.get_device(), {}
    for name, (model, how) in trainings.items():
        gc.collect()
        before = paddle.device.memory_allocated(place)
        network = _new_network(model, how["sequence"])
        if how.get("recompute"):
            network.recompute_enable()
        optimizer = paddle.optimizer.AdamW(1e-3, parameters=network.parameters())
        tokens = paddle.randint(0, model.vocabulary, [how["micro_batch"], how["sequence"]])
        for _ in range(2):
            paddle.device.reset_max_memory_allocated(place)
            _accumulate(network, tokens)
            peak = paddle.device.max_memory_allocated(place) - before
            optimizer.step()
            optimizer.clear_grad(set_to_zero=False)
        found[name] = paddle.device.memory_allocated(place) - before, peak
        del network, optimizer, tokens
    return found


def _new_network(model: Model, sequence: int) -> Any:
    config = LlamaConfig(
        vocab_size=model.vocabulary,
        hidden_size=model.hidden,
        intermediate_size=model.intermediate,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.kv_heads,
        max_position_embeddings=sequence,
        use_cache=False,
    )
    network = LlamaForCausalLM._from_config(config, dtype="float32")
    network.train()
    return network


def _accumulate(network: Any, tokens: Any) -> None:
    """The gradients of two micro-batches."""
    for _ in range(MICRO_BATCHES):
        loss = network(tokens, labels=tokens)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        del loss
