"""A decoder, its gradients and AdamW written from their formulas in numpy, in double precision: what a card is held against.

Nothing is shared with Paddle, PaddleNLP's models or its Trainer. It knows Qwen2 and Llama: RMSNorm, rotary positions,
grouped queries and SwiGLU (Touvron et al. 2023, "Llama 2"; Qwen team 2024, "Qwen2"). Each layer is a function that returns
its output and a function that carries a gradient back through it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Weights = Mapping[str, np.ndarray]
Gradients = dict[str, np.ndarray]
Back = Callable[[np.ndarray], np.ndarray]

FAMILIES = ("qwen2", "llama")
"""The values of config.model_type that this file knows."""

_NEVER = -1e30


def weights_of(network: Any) -> dict[str, np.ndarray]:
    """A copy of a network's weights in double precision, by name."""
    return {name: value.astype("float32").numpy().astype(np.float64) for name, value in network.state_dict().items()}


def logits(weights: Weights, config: Any, batch: Mapping[str, np.ndarray]) -> np.ndarray:
    """batch["input_ids"] and batch["attention_mask"], both [batch, length] -> [batch, length, vocabulary].

    Positions count from 0 at the left edge, padding included, as PaddleNLP counts them.
    """
    return _decode(weights, config, batch, defaultdict(float))[0]


def loss_and_gradients(weights: Weights, config: Any, batch: Mapping[str, np.ndarray], ignored: int) -> tuple[float, Gradients]:
    """The mean negative log-probability of batch["labels"], those equal to `ignored` left out, and its gradient by name.

    Labels are already moved one place forward: the label at a position is the token that follows it.
    """
    sums, gradients = log_probabilities(weights, config, batch, ignored)
    count = int((batch["labels"] != ignored).sum())
    return float(-sums.sum() / count), gradients(np.full(len(sums), -1 / count))


def log_probabilities(
    weights: Weights, config: Any, batch: Mapping[str, np.ndarray], ignored: int
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """For each row the sum of ln p over its labels that are not `ignored`, [batch]; and a function that gives, for a factor a
    row, [batch], the gradient of the sum of factor times log-probability by name. Labels as in loss_and_gradients.
    """
    slopes: Gradients = defaultdict(float)
    scores, back = _decode(weights, config, batch, slopes)
    shares = _softmax(scores)
    rows, columns = np.nonzero(batch["labels"] != ignored)
    wanted = batch["labels"][rows, columns]
    sums = np.zeros(len(scores))
    np.add.at(sums, rows, np.log(shares[rows, columns, wanted]))

    def gradients(factors: np.ndarray) -> Gradients:
        slopes.clear()
        slope = np.zeros_like(shares)
        slope[rows, columns] = -shares[rows, columns] * factors[rows, None]
        slope[rows, columns, wanted] += factors[rows]
        back(slope)
        return dict(slopes)

    return sums, gradients


@dataclass
class AdamW:
    """Adam with decoupled weight decay and a bound on the gradient's norm (Loshchilov and Hutter 2019, algorithm 2).

    decayed: the names that weight decay acts on.
    """

    beta1: float
    beta2: float
    epsilon: float
    weight_decay: float
    max_norm: float
    decayed: frozenset[str]
    _steps: int = 0
    _first: Gradients = field(default_factory=dict)
    _second: Gradients = field(default_factory=dict)

    def step(self, weights: Weights, slopes: Weights, rate: float) -> dict[str, np.ndarray]:
        """The weights after one step at learning rate `rate`."""
        self._steps += 1
        norm = np.sqrt(sum(float((slope**2).sum()) for slope in slopes.values()))
        scale = min(1.0, self.max_norm / norm)
        return {name: self._moved(name, weight, slopes[name] * scale, rate) for name, weight in weights.items()}

    def _moved(self, name: str, weight: np.ndarray, slope: np.ndarray, rate: float) -> np.ndarray:
        first = self._first[name] = self.beta1 * self._first.get(name, 0.0) + (1 - self.beta1) * slope
        second = self._second[name] = self.beta2 * self._second.get(name, 0.0) + (1 - self.beta2) * slope**2
        unbiased = first / (1 - self.beta1**self._steps)
        spread = np.sqrt(second / (1 - self.beta2**self._steps))
        decay = self.weight_decay if name in self.decayed else 0.0
        return weight * (1 - rate * decay) - rate * unbiased / (spread + self.epsilon)


# ------------------------------------------------------------------------------------------------------------ the decoder


def _decode(
    weights: Weights, config: Any, batch: Mapping[str, np.ndarray], slopes: Gradients
) -> tuple[np.ndarray, Callable[[np.ndarray], None]]:
    """Logits, and the function that adds every weight's gradient to `slopes` when it is given the logits' gradient."""
    if config.model_type not in FAMILIES:
        raise ValueError(f"model_type {config.model_type!r} is not one of {', '.join(FAMILIES)}")
    prefix, ids = config.model_type, batch["input_ids"]
    length = ids.shape[1]
    causal = np.tril(np.ones((length, length), bool))[None, None]
    hidden_from = np.where(causal & (batch["attention_mask"][:, None, None, :] > 0), 0.0, _NEVER)
    hidden = weights[f"{prefix}.embed_tokens.weight"][ids]
    backs: list[Back] = []
    for layer in range(config.num_hidden_layers):
        at = f"{prefix}.layers.{layer}"
        for norm, block in (("input_layernorm", _attention), ("post_attention_layernorm", _feed_forward)):
            normed, back_norm = _rms_norm(hidden, f"{at}.{norm}", weights, slopes, config)
            added, back_block = block(normed, at, weights, slopes, config, hidden_from)
            hidden = hidden + added
            backs.append(lambda slope, norm=back_norm, block=back_block: slope + norm(block(slope)))
    normed, back_norm = _rms_norm(hidden, f"{prefix}.norm", weights, slopes, config)
    scores, back_head = _head(normed, prefix, weights, slopes, config)

    def back(slope: np.ndarray) -> None:
        slope = back_norm(back_head(slope))
        for step in reversed(backs):
            slope = step(slope)
        table = np.zeros_like(weights[f"{prefix}.embed_tokens.weight"])
        np.add.at(table, ids, slope)
        slopes[f"{prefix}.embed_tokens.weight"] += table

    return scores, back


def _attention(
    normed: np.ndarray, at: str, weights: Weights, slopes: Gradients, config: Any, hidden_from: np.ndarray
) -> tuple[np.ndarray, Back]:
    batch, length, width = normed.shape
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size, shared = width // heads, heads // groups
    turn, turn_back = _rotary(length, size, config.rope_theta)

    def split(flat: np.ndarray) -> np.ndarray:
        return flat.reshape(batch, length, -1, size).swapaxes(1, 2)

    def join(apart: np.ndarray) -> np.ndarray:
        return apart.swapaxes(1, 2).reshape(batch, length, -1)

    def gathered(apart: np.ndarray) -> np.ndarray:
        return apart.reshape(batch, groups, shared, length, size).sum(axis=2)

    flat_query, back_query = _linear(normed, f"{at}.self_attn.q_proj", weights, slopes)
    flat_key, back_key = _linear(normed, f"{at}.self_attn.k_proj", weights, slopes)
    flat_value, back_value = _linear(normed, f"{at}.self_attn.v_proj", weights, slopes)
    query = turn(split(flat_query))
    key = np.repeat(turn(split(flat_key)), shared, axis=1)
    value = np.repeat(split(flat_value), shared, axis=1)
    shares = _softmax(query @ key.swapaxes(2, 3) / np.sqrt(size) + hidden_from)
    out, back_out = _linear(join(shares @ value), f"{at}.self_attn.o_proj", weights, slopes)

    def back(slope: np.ndarray) -> np.ndarray:
        mixed = split(back_out(slope))
        from_shares = mixed @ value.swapaxes(2, 3)
        scores = shares * (from_shares - (from_shares * shares).sum(axis=-1, keepdims=True)) / np.sqrt(size)
        to_query = back_query(join(turn_back(scores @ key)))
        to_key = back_key(join(turn_back(gathered(scores.swapaxes(2, 3) @ query))))
        return to_query + to_key + back_value(join(gathered(shares.swapaxes(2, 3) @ mixed)))

    return out, back


def _feed_forward(
    normed: np.ndarray, at: str, weights: Weights, slopes: Gradients, config: Any, hidden_from: np.ndarray
) -> tuple[np.ndarray, Back]:
    gate, back_gate = _linear(normed, f"{at}.mlp.gate_proj", weights, slopes)
    up, back_up = _linear(normed, f"{at}.mlp.up_proj", weights, slopes)
    open_by = 1 / (1 + np.exp(-gate))
    out, back_down = _linear(gate * open_by * up, f"{at}.mlp.down_proj", weights, slopes)

    def back(slope: np.ndarray) -> np.ndarray:
        inner = back_down(slope)
        return back_up(inner * gate * open_by) + back_gate(inner * up * open_by * (1 + gate * (1 - open_by)))

    return out, back


def _linear(given: np.ndarray, name: str, weights: Weights, slopes: Gradients) -> tuple[np.ndarray, Back]:
    weight, bias = weights[f"{name}.weight"], weights.get(f"{name}.bias")
    out = given @ weight if bias is None else given @ weight + bias

    def back(slope: np.ndarray) -> np.ndarray:
        slopes[f"{name}.weight"] += np.einsum("bli,blo->io", given, slope, optimize=True)
        if bias is not None:
            slopes[f"{name}.bias"] += slope.sum(axis=(0, 1))
        return slope @ weight.T

    return out, back


def _head(normed: np.ndarray, prefix: str, weights: Weights, slopes: Gradients, config: Any) -> tuple[np.ndarray, Back]:
    if not config.tie_word_embeddings:
        return _linear(normed, "lm_head", weights, slopes)
    name = f"{prefix}.embed_tokens.weight"

    def back(slope: np.ndarray) -> np.ndarray:
        slopes[name] += np.einsum("blv,blh->vh", slope, normed, optimize=True)
        return slope @ weights[name]

    return normed @ weights[name].T, back


def _rms_norm(given: np.ndarray, name: str, weights: Weights, slopes: Gradients, config: Any) -> tuple[np.ndarray, Back]:
    weight = weights[f"{name}.weight"]
    size = np.sqrt((given**2).mean(axis=-1, keepdims=True) + config.rms_norm_eps)
    unit = given / size

    def back(slope: np.ndarray) -> np.ndarray:
        slopes[f"{name}.weight"] += (slope * unit).sum(axis=(0, 1))
        scaled = slope * weight
        return (scaled - unit * (scaled * unit).mean(axis=-1, keepdims=True)) / size

    return unit * weight, back


def _rotary(length: int, size: int, theta: float) -> tuple[Back, Back]:
    frequencies = theta ** (-np.arange(0, size, 2) / size)
    angles = np.outer(np.arange(length), np.concatenate([frequencies, frequencies]))
    half, cos, sin = size // 2, np.cos(angles), np.sin(angles)

    def turn(heads: np.ndarray) -> np.ndarray:
        return heads * cos + np.concatenate([-heads[..., half:], heads[..., :half]], axis=-1) * sin

    def turn_back(slope: np.ndarray) -> np.ndarray:
        turned = slope * sin
        return slope * cos + np.concatenate([turned[..., half:], -turned[..., :half]], axis=-1)

    return turn, turn_back


def _softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)
