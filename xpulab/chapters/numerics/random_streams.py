"""Are random numbers independent: inside a draw, between draws, seeds and types, and in dropout masks?

Independent draws of mean 0 and variance 1 have products whose mean is 0 within a few times 1 / sqrt(n). A generator that
repeats a block, or gives two threads the same numbers, has a correlation at some distance, although its mean and variance are
right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

DISTANCES = (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Distances at which a generator that works in lanes, warps or blocks may repeat itself."""

TOKENS, WORDS, WIDTH = 64, 32, 48
"""Of the network of repeated_step."""

CHANCES = 0.3
"""The probability of a one in Bernoulli draws and of a zero in dropout."""


def stray(draws: int, deviation: float) -> float:
    """How far the mean of so many draws may be from its expectation, for this standard deviation of one draw."""
    return 5 * deviation / draws**0.5


def standardized(draw: np.ndarray) -> np.ndarray:
    """The draw [n] with mean 0 and variance 1, in double precision."""
    exact = draw.astype("float64")
    return (exact - exact.mean()) / exact.std()


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """|mean of first * second| in units of 1 / sqrt(n), for standardized draws [n]. 5 is exceeded once in two million times."""
    return float(abs((first * second).mean()) * len(first) ** 0.5)


def inside(draw: np.ndarray) -> dict[str, float]:
    """By name the correlations inside a standardized draw [n]: neighbours at each of DISTANCES, its halves, its place."""
    size = len(draw)
    found = {f"distance {each}": correlation(draw[:-each], draw[each:]) for each in DISTANCES if each < size // 2}
    found["halves"] = correlation(draw[: size // 2], draw[size // 2 : size // 2 * 2])
    found["reversed halves"] = correlation(draw[: size // 2], draw[: -(size // 2) - 1 : -1])
    found["place"] = correlation(draw, standardized(np.arange(size)))
    return found


DRAWS: dict[str, Callable[[int], paddle.Tensor]] = {
    "uniform": lambda n: paddle.rand([n]),
    "uniform, float64": lambda n: paddle.rand([n], dtype="float64"),
    "normal": lambda n: paddle.randn([n]),
    "normal, float64": lambda n: paddle.randn([n], dtype="float64"),
    "integers": lambda n: paddle.randint(0, 1000, [n]),
    "permutation": lambda n: paddle.randperm(n),
    "bernoulli": lambda n: paddle.bernoulli(paddle.full([n], CHANCES)),
    "exponential": lambda n: paddle.empty([n]).exponential_(),
    "dropout": lambda n: F.dropout(paddle.ones([n]), CHANCES),
    "dropout of a matrix": lambda n: F.dropout(paddle.ones([n // 64, 64]), CHANCES).reshape([-1]),
    "dropout of attention": lambda n: dropped_attention(n),
    "multinomial": lambda n: paddle.multinomial(paddle.ones([16]), n, replacement=True),
}
"""By name the draws of n numbers."""


def dropped_attention(n: int) -> paddle.Tensor:
    """The share of each of 64 keys in the queries, times 64: all see all alike, and dropout leaves 0 or 1 / (1 - CHANCES)."""
    queries, keys = paddle.zeros([1, n // 64, 1, 64]), paddle.zeros([1, 64, 1, 64])
    values = 64 * paddle.eye(64).reshape([1, 64, 1, 64])
    return F.scaled_dot_product_attention(queries, keys, values, dropout_p=CHANCES).reshape([-1])


def seeds_in_a_row(seed: int, seeds: int, count: int) -> list[np.ndarray]:
    """Standardized draws of `count` normal numbers, with the seeds from `seed` on."""
    found = []
    for each in range(seed, seed + seeds):
        paddle.seed(each)
        found.append(standardized(paddle.randn([count]).numpy()))
    return found


def repeated_step(seed: int) -> dict[str, np.ndarray]:
    """By name the loss, the gradients and the weights after one step of AdamW, all of which follow from the seed.

    The small network has an embedding, attention, dropout, a norm, a product and cross entropy.
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
