"""Dropout in a model whose configuration has none, so that its training depends on random numbers."""

from __future__ import annotations

from typing import Any

import paddle.nn.functional as F


def with_dropout(network: Any, rate: float) -> Any:
    """The network, with this dropout in its attention, or behind its embeddings if its attention has none, as in Llama.

    rate: the share of values that are set to 0 at random while training.
    """
    if hasattr(network.config, "attention_dropout"):
        network.config.attention_dropout = rate
    elif rate:
        embedding = network.get_input_embeddings()
        embedding.register_forward_post_hook(lambda layer, given, output: F.dropout(output, rate, training=layer.training))
    return network
