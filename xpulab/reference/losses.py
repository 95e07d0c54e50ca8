"""The losses of the reference decoder and their gradients, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from xpulab.reference.model import Batch, Gradients, Weights, forward, no_gradients
from xpulab.reference.operators import softmax


def loss(weights: Weights, config: Any, batch: Batch, ignored: int) -> float:
    """The mean of -ln p(label) over the labels that are not `ignored`. The labels are shifted as in loss_and_gradients."""
    sums, _ = log_probabilities(weights, config, batch, ignored)
    return float(-sums.sum() / int((batch["labels"] != ignored).sum()))


def loss_and_gradients(weights: Weights, config: Any, batch: Batch, ignored: int) -> tuple[float, Gradients]:
    """The mean of -ln p(label) over the labels that are not `ignored`, and its gradient for each weight, by name.

    The labels are shifted: the label at a position is the token that follows it.
    """
    sums, gradients_of = log_probabilities(weights, config, batch, ignored)
    count = int((batch["labels"] != ignored).sum())
    return float(-sums.sum() / count), gradients_of(np.full(len(sums), -1 / count))


def log_probabilities(
    weights: Weights, config: Any, batch: Batch, ignored: int, total: Gradients | None = None
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients]]:
    """The sum of ln p(label) over the labels of each row that are not `ignored`, [batch]; and a function for its gradients.

    The function takes one factor for each row, [batch], and returns the gradient of sum(factor * log-probability) for each
    weight, by name. The labels are shifted as in loss_and_gradients.

    total: from no_gradients(), to which the function adds the gradients instead; it saves the memory of a second copy.
    """
    gradients = no_gradients() if total is None else total
    scores, backward = forward(weights, config, batch, gradients)
    probabilities = softmax(scores)
    rows, columns = np.nonzero(batch["labels"] != ignored)
    labels = batch["labels"][rows, columns]
    sums = np.zeros(len(scores))
    np.add.at(sums, rows, np.log(probabilities[rows, columns, labels]))

    def gradients_of(factors: np.ndarray) -> Gradients:
        if total is None:
            gradients.clear()
        d_scores = np.zeros_like(probabilities)
        d_scores[rows, columns] = -probabilities[rows, columns] * factors[rows, None]
        d_scores[rows, columns, labels] += factors[rows]
        backward(d_scores)
        return dict(gradients)

    return sums, gradients_of
