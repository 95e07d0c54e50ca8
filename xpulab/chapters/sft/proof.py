"""What the proof of chapter 02 asks of a trained network: logits, alone and with the cache, and the bits that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle


def weights_of(network: Any) -> dict[str, np.ndarray]:
    """A copy of the weights, by name."""
    return {name: value.numpy().copy() for name, value in network.named_parameters()}


def losses_after(trainer: Any, history: Any) -> list[float]:
    """Train, and return the losses that `history` kept. PaddleNLP raises an error when a loss is NaN."""
    trainer.train()
    return history.losses


@paddle.no_grad()
def run_model(network: Any, batch: Mapping[str, Any]) -> tuple[np.ndarray, float | None]:
    """Logits [examples, tokens, vocabulary], and the loss where the batch has labels, else None."""
    network.eval()
    output = network(**{name: paddle.to_tensor(value) for name, value in batch.items()})
    output = output if isinstance(output, tuple) else (output,)
    return output[-1].numpy(), float(output[0]) if "labels" in batch else None


@paddle.no_grad()
def decode_with_cache(network: Any, tokens: np.ndarray, mask: np.ndarray, count: int = 6, **changes: Any) -> np.ndarray:
    """The logits of the last `count` tokens, passed one at a time as generate() does; changes: of a cached step.

    tokens, mask: [examples, tokens].
    """
    given, seen = paddle.to_tensor(tokens), paddle.to_tensor(mask)
    cache: Any = None
    found = []
    for end in range(tokens.shape[1] - count, tokens.shape[1] + 1):
        step = network.prepare_inputs_for_generation(
            given[:, :end], use_cache=True, past_key_values=cache, attention_mask=seen[:, :end]
        )
        logits, cache = network(**{**step, **(changes if cache else {})})[:2]
        found.append(logits[:, -1].numpy())
    return np.stack(found[1:], axis=1)


def share_of_short(tensors: Mapping[str, Any]) -> float:
    """The share of the nonzero numbers that bfloat16 can represent: in single precision 1 of 65,536, and a few round ones."""
    short = counted = 0
    for value in tensors.values():
        bits = value.numpy().ravel().view("uint32")
        short += np.count_nonzero(bits[bits != 0] % 65536 == 0)
        counted += np.count_nonzero(bits)
    return short / counted


def one_step(network: Any, batch: Mapping[str, np.ndarray]) -> None:
    """A forward and a backward pass, which leave no gradient behind."""
    network(**{name: paddle.to_tensor(value) for name, value in batch.items()})[0].backward()
    network.clear_gradients()
