"""Training steps of tiny models with random weights, to be recorded: Qwen2, Llama, and DPO of Qwen2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.models import IGNORED, new_model
from xpulab.operators.calls import Recording
from xpulab.operators.recorder import record

LENGTH, PROMPT, VOCABULARY, BETA = 7, 2, 500, 0.5


def recordings(batch: int, seed: int) -> dict[str, Recording]:
    """By name the second training step of each model. batch: sequences of LENGTH tokens, and pairs for DPO."""
    made = {
        "Qwen2": fine_tuning("tiny-qwen2", batch, seed),
        "Llama": fine_tuning("tiny-llama", batch, seed),
        "DPO": preferences("tiny-qwen2", batch, seed),
    }
    found = {}
    for name, step in made.items():
        step()  # makes the optimizer's state
        found[name] = record(step)
    return found


def fine_tuning(model: str, batch: int, seed: int) -> Callable[[], None]:
    """A function that takes one step of AdamW on the loss of tokens after the prompt."""
    network = new_model(model, seed)
    ids = _ids(batch, seed)
    labels = paddle.where(paddle.arange(LENGTH) < PROMPT, paddle.full_like(ids, IGNORED), ids)
    optimizer = _optimizer(network)

    def step() -> None:
        loss = network(input_ids=ids, labels=labels, attention_mask=paddle.ones_like(ids))[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def preferences(model: str, batch: int, seed: int) -> Callable[[], None]:
    """A function that takes one step of AdamW on the loss of DPO, with the model itself as its reference."""
    network, frozen = new_model(model, seed), new_model(model, seed)
    chosen, rejected = _ids(batch, seed), _ids(batch, seed + 1)
    optimizer = _optimizer(network)

    def step() -> None:
        with paddle.no_grad():
            before = _log_probability(frozen, chosen) - _log_probability(frozen, rejected)
        after = _log_probability(network, chosen) - _log_probability(network, rejected)
        loss = -F.log_sigmoid(BETA * (after - before)).mean()
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()

    return step


def _log_probability(network: Any, ids: paddle.Tensor) -> paddle.Tensor:
    """ln p of each sequence after its first token, [batch]."""
    labels = F.pad(ids[:, 1:], [0, 1], value=IGNORED)
    logits = network(input_ids=ids)
    logits = logits[0] if isinstance(logits, tuple) else logits
    return -F.cross_entropy(logits, labels.unsqueeze(-1), reduction="none", ignore_index=IGNORED).squeeze(-1).sum(axis=-1)


def _optimizer(network: Any) -> Any:
    clip = paddle.nn.ClipGradByGlobalNorm(1.0)
    return paddle.optimizer.AdamW(1e-3, parameters=network.parameters(), grad_clip=clip)


def _ids(batch: int, seed: int) -> paddle.Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).integers(0, VOCABULARY, (batch, LENGTH)))
