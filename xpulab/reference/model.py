"""A decoder and its backward pass from their formulas in numpy, in double precision.

It covers Qwen2 and Llama: RMSNorm, rotary position embedding, grouped-query attention and SwiGLU (Touvron et al. 2023,
"Llama 2"; Qwen team 2024, "Qwen2"). It shares no code with Paddle or PaddleNLP.

Each layer is a function that returns its output and its backward function. A backward function takes the gradient of the loss
with respect to the output, returns that with respect to the input, and adds the gradients of the layer's weights to
`gradients`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from xpulab.reference.operators import PAIRS, normalized, rotated, slope_of_normalized, slope_of_softmax, softmax

Weights = Mapping[str, np.ndarray]
"""The weights by name, as in the network's state dict."""

Gradients = dict[str, np.ndarray]
"""A gradient for each weight, by the name of the weight."""

Batch = Mapping[str, np.ndarray]
"""input_ids, attention_mask (1 for a token, 0 for padding) and, for a loss, labels: each [batch, length]."""

Backward = Callable[[np.ndarray], np.ndarray]
"""Gradient with respect to an output -> gradient with respect to the input."""

FAMILIES = ("qwen2", "llama")
"""The supported values of config.model_type."""

_SWIGLU: Any = PAIRS["swiglu"]
_MASKED = -1e30
"""Added to an attention score that must have no probability."""


def weights_of(network: Any) -> dict[str, np.ndarray]:
    """A copy of a network's weights in double precision, by name."""
    return {name: value.astype("float32").numpy().astype(np.float64) for name, value in network.state_dict().items()}


class DoublePrecision(Mapping[str, np.ndarray]):
    """Weights that stay in single precision; each is converted when it is read, so all together need half the memory.

    changes: by the name of a weight a function of this name, which returns what is added to the weight.
    """

    def __init__(self, weights: Weights, changes: Mapping[str, Callable[[str], np.ndarray]] | None = None) -> None:
        self._weights, self._changes = weights, changes or {}

    def __getitem__(self, name: str) -> np.ndarray:
        weight = self._weights[name].astype(np.float64)
        return weight + self._changes[name](name) if name in self._changes else weight

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def __len__(self) -> int:
        return len(self._weights)


def logits(weights: Weights, config: Any, batch: Batch) -> np.ndarray:
    """The logits, [batch, length, vocabulary].

    Positions count from 0 at the left edge, padding included, as in PaddleNLP.
    Raises ValueError for a model_type that is not in FAMILIES.
    """
    return forward(weights, config, batch, no_gradients())[0]


def no_gradients() -> Gradients:
    """What backward functions add to: 0.0 stands for a gradient until the first array is added to it."""
    zero: Any = float
    return defaultdict(zero)


def forward(
    weights: Weights, config: Any, batch: Batch, gradients: Gradients
) -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
    """The logits, [batch, length, vocabulary], and the backward function of the whole decoder.

    The backward function takes the gradient with respect to the logits and adds the gradient of every weight to `gradients`,
    which was no_gradients() before the first backward.
    """
    if config.model_type not in FAMILIES:
        raise ValueError(f"model_type {config.model_type!r} is not one of {', '.join(FAMILIES)}")
    prefix, ids = config.model_type, batch["input_ids"]
    embedding = f"{prefix}.embed_tokens.weight"
    mask = _attention_mask(batch["attention_mask"])
    table = weights[embedding]
    hidden = table[ids]
    backward_steps: list[Backward] = []
    for layer in range(config.num_hidden_layers):
        name = f"{prefix}.layers.{layer}"
        for norm, block in (("input_layernorm", _attention), ("post_attention_layernorm", _feed_forward)):
            normed, norm_backward = _rms_norm(hidden, f"{name}.{norm}", weights, gradients, config)
            residual, block_backward = block(normed, name, weights, gradients, config, mask)
            hidden = hidden + residual
            backward_steps.append(_residual_backward(norm_backward, block_backward))
    normed, norm_backward = _rms_norm(hidden, f"{prefix}.norm", weights, gradients, config)
    scores, head_backward = _head(normed, prefix, weights, gradients, config)

    def backward(gradient: np.ndarray) -> None:
        gradient = norm_backward(head_backward(gradient))
        for step in reversed(backward_steps):
            gradient = step(gradient)
        embedding_gradient = np.zeros_like(table)
        np.add.at(embedding_gradient, ids, gradient)
        gradients[embedding] += embedding_gradient

    return scores, backward


def _residual_backward(norm_backward: Backward, block_backward: Backward) -> Backward:
    """The backward function of x + block(norm(x))."""
    return lambda gradient: gradient + norm_backward(block_backward(gradient))


def _attention_mask(attention_mask: np.ndarray) -> np.ndarray:
    """[batch, length] of 0 and 1 -> [batch, 1, length, length] to add to the scores: causal, and without padding."""
    length = attention_mask.shape[1]
    causal = np.tril(np.ones((length, length), bool))[None, None]
    return np.where(causal & (attention_mask[:, None, None, :] > 0), 0.0, _MASKED)


def _attention(
    normed: np.ndarray, layer: str, weights: Weights, gradients: Gradients, config: Any, mask: np.ndarray
) -> tuple[np.ndarray, Backward]:
    """Grouped-query attention. normed: [batch, length, hidden]; mask: as from _attention_mask."""
    batch, length, width = normed.shape
    heads, key_heads = config.num_attention_heads, config.num_key_value_heads
    size, queries_per_key = width // heads, heads // key_heads
    cosine, sine = _rotation(length, size, config.rope_theta)

    def split(joined: np.ndarray) -> np.ndarray:
        """[batch, length, heads * size] -> [batch, heads, length, size]"""
        return joined.reshape(batch, length, -1, size).swapaxes(1, 2)

    def join(by_head: np.ndarray) -> np.ndarray:
        """[batch, heads, length, size] -> [batch, length, heads * size]"""
        return by_head.swapaxes(1, 2).reshape(batch, length, -1)

    def sum_groups(by_head: np.ndarray) -> np.ndarray:
        """[batch, heads, length, size] -> [batch, key heads, length, size]: the backward of np.repeat below."""
        return by_head.reshape(batch, key_heads, queries_per_key, length, size).sum(axis=2)

    joined_query, query_backward = _linear(normed, f"{layer}.self_attn.q_proj", weights, gradients)
    joined_key, key_backward = _linear(normed, f"{layer}.self_attn.k_proj", weights, gradients)
    joined_value, value_backward = _linear(normed, f"{layer}.self_attn.v_proj", weights, gradients)
    query = rotated(split(joined_query), cosine, sine)
    key = np.repeat(rotated(split(joined_key), cosine, sine), queries_per_key, axis=1)
    value = np.repeat(split(joined_value), queries_per_key, axis=1)
    probabilities = softmax(query @ key.swapaxes(2, 3) / np.sqrt(size) + mask)
    output, output_backward = _linear(join(probabilities @ value), f"{layer}.self_attn.o_proj", weights, gradients)

    def backward(gradient: np.ndarray) -> np.ndarray:
        mixed = split(output_backward(gradient))
        d_scores = slope_of_softmax(probabilities, mixed @ value.swapaxes(2, 3)) / np.sqrt(size)
        from_query = query_backward(join(rotated(d_scores @ key, cosine, -sine)))
        from_key = key_backward(join(rotated(sum_groups(d_scores.swapaxes(2, 3) @ query), cosine, -sine)))
        return from_query + from_key + value_backward(join(sum_groups(probabilities.swapaxes(2, 3) @ mixed)))

    return output, backward


def _feed_forward(
    normed: np.ndarray, layer: str, weights: Weights, gradients: Gradients, config: Any, mask: np.ndarray
) -> tuple[np.ndarray, Backward]:
    """SwiGLU: down(silu(gate(x)) * up(x)). normed: [batch, length, hidden]."""
    gate, gate_backward = _linear(normed, f"{layer}.mlp.gate_proj", weights, gradients)
    up, up_backward = _linear(normed, f"{layer}.mlp.up_proj", weights, gradients)
    output, down_backward = _linear(_SWIGLU.value(gate, up), f"{layer}.mlp.down_proj", weights, gradients)

    def backward(gradient: np.ndarray) -> np.ndarray:
        inner, (by_gate, by_up) = down_backward(gradient), _SWIGLU.slopes(gate, up)
        return up_backward(inner * by_up) + gate_backward(inner * by_gate)

    return output, backward


def _linear(inputs: np.ndarray, name: str, weights: Weights, gradients: Gradients) -> tuple[np.ndarray, Backward]:
    """inputs @ weight + bias, where there is a bias. inputs: [batch, length, in]; weight: [in, out]."""
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    output = inputs @ weight if bias is None else inputs @ weight + bias

    def backward(gradient: np.ndarray) -> np.ndarray:
        gradients[f"{name}.weight"] += np.einsum("bli,blo->io", inputs, gradient, optimize=True)
        if bias is not None:
            gradients[f"{name}.bias"] += gradient.sum(axis=(0, 1))
        return gradient @ weight.T

    return output, backward


def _head(normed: np.ndarray, prefix: str, weights: Weights, gradients: Gradients, config: Any) -> tuple[np.ndarray, Backward]:
    """The logits from the last hidden state: by lm_head, or by the embedding where they are tied."""
    if not config.tie_word_embeddings:
        return _linear(normed, "lm_head", weights, gradients)
    name = f"{prefix}.embed_tokens.weight"
    table = weights[name]

    def backward(gradient: np.ndarray) -> np.ndarray:
        gradients[name] += np.einsum("blv,blh->vh", gradient, normed, optimize=True)
        return gradient @ table

    return normed @ table.T, backward


def _rms_norm(
    inputs: np.ndarray, name: str, weights: Weights, gradients: Gradients, config: Any
) -> tuple[np.ndarray, Backward]:
    """inputs / sqrt(mean(inputs ** 2) + rms_norm_eps) * weight, over the last axis."""
    weight = weights[f"{name}.weight"]
    unit, size, _ = normalized(inputs, (-1,), config.rms_norm_eps, is_centered=False)

    def backward(gradient: np.ndarray) -> np.ndarray:
        gradients[f"{name}.weight"] += (gradient * unit).sum(axis=(0, 1))
        return slope_of_normalized(unit, size, gradient * weight, (-1,), is_centered=False)

    return unit * weight, backward


def _rotation(length: int, size: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of rotary position embedding, [length, size].

    Components i and i + size / 2 of a head at position p are rotated by the angle p * theta ** (-2 * i / size).
    """
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    angles = np.outer(np.arange(length), np.concatenate([frequencies, frequencies]))
    return np.cos(angles), np.sin(angles)
