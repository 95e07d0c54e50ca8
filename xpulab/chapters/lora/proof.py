"""What the proof of chapter 03 compares with: gradients of a run, what each variant must add to a weight, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
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


def scale_of(kind: str, rank: int, alpha: float) -> float:
    """The factor s of a variant."""
    if kind in ("PiSSA", "MoRA"):
        return 1.0
    return alpha / rank**0.5 if kind == "rsLoRA" else alpha / rank


def added(kind: str, parts: Mapping[str, np.ndarray], shape: Sequence[int], scale: float) -> np.ndarray:
    """What a variant adds to a weight of this shape, [inputs, outputs]; parts: its matrices, by "lora_A" and so on."""
    if kind == "MoRA":
        return scale * mora(parts["lora_A"], *shape)
    return scale * np.linalg.multi_dot([parts[name] for name in ("lora_A", "lora_AB", "lora_B") if name in parts])


def slopes(
    kind: str, parts: Mapping[str, np.ndarray], shape: Sequence[int], scale: float, whole: np.ndarray
) -> dict[str, np.ndarray]:
    """The gradients of the matrices of a variant, as `added` has them. whole: that of the weight, [inputs, outputs]."""
    a = parts["lora_A"]
    if kind == "MoRA":  # the gradient of each of its numbers follows from what it adds
        units = (mora(unit.reshape(a.shape), *shape) for unit in np.eye(a.size))
        return {"lora_A": scale * np.array([(unit * whole).sum() for unit in units]).reshape(a.shape)}
    b = parts["lora_B"]
    if "lora_AB" not in parts:
        return {"lora_A": scale * whole @ b.T, "lora_B": scale * a.T @ whole}
    middle = parts["lora_AB"]
    of_middle = scale * a.T @ whole @ b.T
    return {"lora_A": scale * whole @ (middle @ b).T, "lora_AB": of_middle, "lora_B": scale * (a @ middle).T @ whole}


def outcome(load: Callable[[Any, str], Any], base: Any, folder: Path, refusal: type[Exception]) -> str:
    """ "refused" when loading the adapter of a folder raises an error of this class, else "loaded"."""
    try:
        load(base, str(folder))
    except refusal:
        return "refused"
    return "loaded"


def largest_b(adapted: Any) -> float:
    """The largest number, without its sign, in the matrices B of a network with an adapter."""
    return max(float(weight.abs().max()) for name, weight in adapted.model.named_parameters() if "lora_B" in name)
