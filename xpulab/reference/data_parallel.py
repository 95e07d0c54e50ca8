"""A training on the rows of all ranks in numpy, step by step: what every rank of a data parallel job must compute.

Two linear layers with tanh between them, cross entropy, plain gradient descent. All ranks have as many rows, so the mean of
their gradients is the gradient of the mean over all rows. With AdamW a gradient of the wrong scale would change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FEATURES, HIDDEN, CLASSES, ROWS = 8, 16, 4, 4
"""Widths of the layers, and rows of each rank."""
STEPS, RATE = 4, 0.5


@dataclass(frozen=True)
class Trained:
    """losses: before each step, of each rank's rows, [ranks, STEPS]. weights: after the last step, as `weights` has them."""

    losses: np.ndarray
    weights: tuple[np.ndarray, ...]


def batch(rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A rank's rows, float32 [ROWS, FEATURES], and their labels, int64 [ROWS]."""
    drawn = np.random.default_rng([seed, rank, 3])
    return drawn.standard_normal((ROWS, FEATURES)).astype("float32"), drawn.integers(0, CLASSES, ROWS)


def weights(seed: int) -> tuple[np.ndarray, ...]:
    """The first weights, float64: [FEATURES, HIDDEN], [HIDDEN], [HIDDEN, CLASSES], [CLASSES]; exact in float32."""
    drawn = np.random.default_rng([seed, 5])
    shapes = ((FEATURES, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
    return tuple((0.5 * drawn.standard_normal(shape)).astype("float32").astype("float64") for shape in shapes)


def train(ranks: int, seed: int) -> Trained:
    """The training of all ranks."""
    return _train([batch(rank, seed) for rank in range(ranks)], seed)


def train_alone(ranks: int, rank: int, seed: int) -> Trained:
    """The control: the same ranks, but all have the rows of one, as if nothing were sent."""
    return _train([batch(rank, seed)] * ranks, seed)


def untrained(seed: int) -> Trained:
    """The control of a single rank: the rows of another one."""
    return _train([batch(1, seed)], seed)


def _train(batches: Sequence[tuple[np.ndarray, np.ndarray]], seed: int) -> Trained:
    rows = np.concatenate([each for each, _ in batches]).astype("float64")
    labels = np.concatenate([each for _, each in batches])
    first, first_bias, second, second_bias = weights(seed)
    losses = []
    for _ in range(STEPS):
        hidden = np.tanh(rows @ first + first_bias)
        logits = hidden @ second + second_bias
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        chances = powers / powers.sum(axis=1, keepdims=True)
        losses.append(-np.log(chances[np.arange(len(labels)), labels]).reshape(len(batches), ROWS).mean(axis=1))
        of_logits = (chances - np.eye(CLASSES)[labels]) / len(labels)
        of_hidden = of_logits @ second.T * (1 - hidden**2)
        second, second_bias = second - RATE * hidden.T @ of_logits, second_bias - RATE * of_logits.sum(axis=0)
        first, first_bias = first - RATE * rows.T @ of_hidden, first_bias - RATE * of_hidden.sum(axis=0)
    return Trained(np.stack(losses, axis=1), (first, first_bias, second, second_bias))
