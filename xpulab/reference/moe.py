"""A mixture-of-experts layer in double precision: gate, capacity, dispatch, combine, auxiliary loss and all gradients.

A token goes to the `k` experts with the highest probabilities of the gate, an expert takes at most `capacity` choices, and the
output of a token is the sum of its experts' outputs by their weights. An expert is silu(x @ up) @ down.

Source of the gate and its capacity: Switch Transformers (arXiv 2101.03961) for k = 1, GShard (arXiv 2006.16668) for the order
of first and second choices, Mixtral (arXiv 2401.04088) for weights that add up to 1. The gradients follow from the chain rule
and chapter 14 compares them with Paddle's. The choices have no gradient: they are constant wherever the gradient exists.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from xpulab.reference.operators import FUNCTIONS, slope_of_softmax, softmax

_SILU = FUNCTIONS["silu"]


@dataclass(frozen=True)
class Weights:
    """The parameters of a layer, or their gradients.

    gate: [hidden, experts].
    up: [experts, hidden, inner].
    down: [experts, inner, hidden].
    """

    gate: np.ndarray
    up: np.ndarray
    down: np.ndarray


@dataclass(frozen=True)
class Routing:
    """Where the tokens go.

    chances: the probabilities of the gate, [tokens, experts].
    chosen: the experts of each token, the likeliest first, [tokens, k].
    weights: what their outputs are multiplied by, [tokens, k].
    kept: whether the expert takes this choice, [tokens, k].
    """

    chances: np.ndarray
    chosen: np.ndarray
    weights: np.ndarray
    kept: np.ndarray

    def loads(self) -> np.ndarray:
        """How many choices fell on each expert, whether or not it takes them, [experts]."""
        return np.bincount(self.chosen.reshape(-1), minlength=self.chances.shape[1])


def capacity_of(tokens: int, experts: int, k: int, factor: float) -> int:
    """How many choices an expert takes: `factor` times its share of all choices, rounded up."""
    return ceil(factor * tokens * k / experts)


def route(x: np.ndarray, gate: np.ndarray, k: int, capacity: int) -> Routing:
    """Route tokens [tokens, hidden] by a gate [hidden, experts]. Of equal probabilities the first expert comes first."""
    chances = softmax(x @ gate)
    chosen = np.argsort(-chances, axis=1, kind="stable")[:, :k]
    weights = np.take_along_axis(chances, chosen, axis=1)
    if k > 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return Routing(chances, chosen, weights, places(chosen, gate.shape[1]) < capacity)


def places(chosen: np.ndarray, experts: int) -> np.ndarray:
    """The place of each choice in the queue of its expert, from 0, [tokens, k]: all first choices, then all second ones."""
    taken, result = np.zeros(experts, int), np.zeros(chosen.shape, int)
    for choice in range(chosen.shape[1]):
        for token, expert in enumerate(chosen[:, choice]):
            result[token, choice] = taken[expert]
            taken[expert] += 1
    return result


def forward(x: np.ndarray, weights: Weights, k: int, capacity: int) -> tuple[np.ndarray, Routing]:
    """The output [tokens, hidden] for tokens [tokens, hidden], and where they went."""
    routing = route(x, weights.gate, k, capacity)
    output = np.zeros_like(x)
    for token, choice in zip(*np.nonzero(routing.kept), strict=True):
        expert = routing.chosen[token, choice]
        output[token] += routing.weights[token, choice] * _expert(x[token], weights, expert)
    return output, routing


def auxiliary_loss(routing: Routing) -> float:
    """The number of experts times the sum over experts of (share of the choices) * (mean probability).

    It is 1 when both are the same for all experts, and the number of experts when one expert has everything.
    """
    tokens, experts = routing.chances.shape
    return float(experts * (routing.loads() / routing.chosen.size) @ routing.chances.sum(axis=0) / tokens)


def gradients(
    x: np.ndarray, weights: Weights, k: int, capacity: int, of_output: np.ndarray, of_auxiliary: float = 0.0
) -> tuple[np.ndarray, Weights]:
    """The gradients with respect to the tokens, [tokens, hidden], and to the parameters.

    of_output: the gradient of the loss with respect to the output. of_auxiliary: the factor of the auxiliary loss in the loss.
    """
    routing = route(x, weights.gate, k, capacity)
    of_x, of_weights = np.zeros_like(x), np.zeros(routing.weights.shape)
    of_up, of_down = np.zeros_like(weights.up), np.zeros_like(weights.down)
    for token, choice in zip(*np.nonzero(routing.kept), strict=True):
        expert = routing.chosen[token, choice]
        of_weights[token, choice] = of_output[token] @ _expert(x[token], weights, expert)
        into, up, down = _expert_gradients(x[token], weights, expert, routing.weights[token, choice] * of_output[token])
        of_x[token] += into
        of_up[expert] += up
        of_down[expert] += down
    (tokens, experts), shares = routing.chances.shape, routing.loads() / routing.chosen.size
    of_loads = experts / tokens * slope_of_softmax(routing.chances, shares)  # of the auxiliary loss
    of_logits = _of_logits(routing, of_weights) + of_auxiliary * of_loads
    return of_x + of_logits @ weights.gate.T, Weights(x.T @ of_logits, of_up, of_down)


def _expert(row: np.ndarray, weights: Weights, expert: int) -> np.ndarray:
    return _SILU.value(row @ weights.up[expert]) @ weights.down[expert]


def _expert_gradients(
    row: np.ndarray, weights: Weights, expert: int, g: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of one expert's output for one token, with respect to the token, up and down. g: [hidden]."""
    inner = row @ weights.up[expert]
    of_inner = (weights.down[expert] @ g) * _SILU.slope(inner)
    return weights.up[expert] @ of_inner, np.outer(row, of_inner), np.outer(_SILU.value(inner), g)


def _of_logits(routing: Routing, of_weights: np.ndarray) -> np.ndarray:
    """From the gradient of the weights [tokens, k] to that of the gate's logits [tokens, experts]."""
    picked = np.take_along_axis(routing.chances, routing.chosen, axis=1)
    if routing.chosen.shape[1] > 1:  # the weights are divided by their sum
        of_weights = (of_weights - (of_weights * routing.weights).sum(axis=1, keepdims=True)) / picked.sum(
            axis=1, keepdims=True
        )
    of_chances = np.zeros_like(routing.chances)
    np.put_along_axis(of_chances, routing.chosen, of_weights, axis=1)
    return slope_of_softmax(routing.chances, of_chances)
