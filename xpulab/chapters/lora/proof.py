"""What the proof of chapter 03 compares with: gradients of a run, and what each variant must add to a weight, and train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from paddlenlp.trainer import TrainerCallback


class GradientRecorder(TrainerCallback):
    """Keeps the gradients of the last step, by name, in `gradients`."""

    def __init__(self, parameters: Iterable[tuple[str, Any]]) -> None:
        self._parameters = dict(parameters)
        self.gradients: dict[str, Any] = {}

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        with_gradient = {name: weight for name, weight in self._parameters.items() if weight.grad is not None}
        self.gradients = {name: weight.grad.clone() for name, weight in with_gradient.items()}


def best_of_rank(weight: np.ndarray, rank: int) -> np.ndarray:
    """The best approximation of a weight with this rank, in double precision, of the same shape."""
    left, values, right = np.linalg.svd(weight.astype(np.float64), full_matrices=False)
    return left[:, :rank] * values[:rank] @ right[:rank]


def mora(square: np.ndarray, inputs: int, outputs: int) -> np.ndarray:
    """What MoRA adds to a weight [inputs, outputs]: the inputs in groups, each rotated and multiplied by the square."""
    size = len(square)
    x = np.eye(inputs)
    x = np.concatenate([x, x[:, : -inputs % size]], axis=1).reshape(inputs, -1, size)
    angles = np.outer(np.arange(x.shape[1]), 1e4 ** (-np.arange(0, size, 2) / size))
    turned = np.concatenate([-x[..., size // 2 :], x[..., : size // 2]], axis=-1)
    y = (x * np.tile(np.cos(angles), 2) + turned * np.tile(np.sin(angles), 2)) @ square
    return np.tile(y.reshape(inputs, -1), -(-outputs // y[0].size))[:, :outputs]


def shapes_of(kind: str, weights: Iterable[Sequence[int]], rank: int) -> str:
    """How many matrices of each part and shape a variant trains for weights of these shapes, [inputs, outputs], as text."""
    found: Counter[str] = Counter()
    for inputs, outputs in weights:
        square = round(((inputs + outputs) * rank) ** 0.5) // 2 * 2
        own = {"A": [square] * 2} if kind == "MoRA" else {"A": [inputs, rank], "B": [rank, outputs]}
        own |= {"AB": [rank, rank]} if kind == "mixer" else {}
        found.update(f"{part} {shape}" for part, shape in own.items())
    return str(sorted(found.items()))


def largest_b(adapted: Any) -> float:
    """The largest number, without its sign, in the matrices B of a network with an adapter."""
    return max(float(weight.abs().max()) for name, weight in adapted.model.named_parameters() if "lora_B" in name)
