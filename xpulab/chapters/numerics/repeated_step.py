"""One training step of a small network, whose every number can be compared with another run of the same step."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

TOKENS, WORDS, WIDTH = 64, 32, 48


def step(seed: int) -> dict[str, np.ndarray]:
    """By name the loss, the gradients and the weights after one step of AdamW, all of which follow from the seed.

    The network has an embedding, attention, dropout, a norm, a product and cross entropy.
    """
    paddle.seed(seed)
    embedding, norm, head = paddle.nn.Embedding(WORDS, WIDTH), paddle.nn.LayerNorm(WIDTH), paddle.nn.Linear(WIDTH, WORDS)
    parameters: dict[str, Any] = {"embedding": embedding.weight, "norm": norm.weight, "head": head.weight}
    optimizer = paddle.optimizer.AdamW(learning_rate=0.01, parameters=list(parameters.values()))
    tokens = paddle.randint(0, WORDS, [2, TOKENS])
    hidden = embedding(tokens).reshape([2, TOKENS, 2, WIDTH // 2])
    mask = paddle.zeros([2, 1, TOKENS, TOKENS])
    attended = F.scaled_dot_product_attention(hidden, hidden, hidden, mask).reshape([2, TOKENS, WIDTH])
    loss = F.cross_entropy(head(norm(F.dropout(attended, 0.1))), tokens)
    loss.backward()
    found = {f"gradient of {name}": each.grad.numpy().copy() for name, each in parameters.items()}
    optimizer.step()
    return {"loss": loss.numpy(), **found, **{f"weight of {name}": each.numpy().copy() for name, each in parameters.items()}}
