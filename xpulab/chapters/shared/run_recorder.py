"""What a training run did, step by step, so that two runs can be compared to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer import TrainerCallback

from xpulab.chapters.shared.states import arrays, distinct

PADDED = (8, 200)
"""Rows and tokens of a batch when it is compared with another one; no batch may be larger."""


def stacked(values: Iterable[Any]) -> np.ndarray:
    """The values as one array; batches, [rows, tokens], are padded with -1 to PADDED, so that any two can be compared."""
    found = [np.asarray(value) for value in values]
    if found[0].ndim == 2:
        missing = [[(0, wanted - size) for wanted, size in zip(PADDED, value.shape, strict=True)] for value in found]
        found = [np.pad(value, pad, constant_values=-1) for value, pad in zip(found, missing, strict=True)]
    return np.stack(found)


def rest(by_step: Mapping[int, Any], after: int, early: int = 0) -> list[Any]:
    """The values of the steps after `after`, to the last one; or of as many steps, `early` steps earlier."""
    return [by_step[step - early] for step in range(after + 1, max(by_step) + 1)]


def draw() -> list[float]:
    """The next number of each of the three generators: Python's, numpy's, Paddle's."""
    return [random.random(), np.random.random(), float(paddle.rand([1]))]


class RunRecorder(TrainerCallback):
    """Records what a run did. Each step draws a number from every generator, as a data augmentation would.

    keep: what is kept of a state dict, `arrays` or `digests`. A tied weight is kept once.
    first_step: the number of steps that were done when the run began. begun: the weights then, by name.
    parameters: the number of values in the weights. stored: the same, with tied ones under each of their names.
    losses, batches, drawn: by the number of the step, from 1, its loss, token ids [rows, tokens] and random numbers;
    drawn[0] are the numbers that would come next. weights, moments: at the end of the run, by name.
    """

    def __init__(self, keep: Callable[[Mapping[str, Any]], dict[str, np.ndarray]] = arrays) -> None:
        self._keep = keep
        self.losses: dict[int, float] = {}
        self.batches: dict[int, np.ndarray] = {}
        self.drawn: dict[int, list[float]] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        weights = model.state_dict()
        self.stored = sum(value.size for value in weights.values())
        self.parameters = sum(value.size for value in distinct(weights).values())
        self.first_step, self.begun = state.global_step, self._keep(distinct(weights))

    def on_load_data_end(self, args: Any, state: Any, control: Any, inputs: Any = None, **others: Any) -> None:
        # skipped batches come here too; the last one of a step is the one that is trained on
        self.batches[state.global_step + 1] = inputs["input_ids"].numpy()

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.drawn[state.global_step + 1] = draw()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if "loss" in logs:
            self.losses[state.global_step] = float(logs["loss"])

    def on_train_end(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, **others: Any
    ) -> None:
        self.weights = self._keep(distinct(model.state_dict()))
        self.moments = self._keep({name: value for name, value in optimizer.state_dict().items() if "moment" in name})
        self.drawn[0] = draw()


class SaveAfter(TrainerCallback):
    """Saves a checkpoint after the given steps only: those of a large model fill a disk."""

    def __init__(self, steps: Container[int]) -> None:
        self._steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        control.should_save = control.should_save and state.global_step in self._steps
