"""What the proof of chapter 03 compares with: the gradients of a run, and what loading gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from paddlenlp.trainer import TrainerCallback


class GradientRecorder(TrainerCallback):
    """Keeps the gradients of the last step, by name, in `gradients`."""

    def __init__(self, parameters: Iterable[tuple[str, Any]]) -> None:
        self._parameters = dict(parameters)
        self.gradients: dict[str, Any] = {}

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        with_gradient = {name: weight for name, weight in self._parameters.items() if weight.grad is not None}
        self.gradients = {name: weight.grad.clone() for name, weight in with_gradient.items()}


def outcome(load: Callable[[Any, str], Any], base: Any, folder: Path, refusal: type[Exception]) -> str:
    """ "refused" when loading the adapter of a folder raises an error of this class, else "loaded"."""
    try:
        load(base, str(folder))
    except refusal:
        return "refused"
    return "loaded"
