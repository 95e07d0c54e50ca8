"""Record what no longer exists after training: each batch, the first gradients, the time of each step.

The checks of a chapter compare it with another computation. A training of your own does not need it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer import TrainerCallback

from xpulab.chapters.shared.device import Device, synchronize


class Recorder(TrainerCallback):
    """A callback for Trainer(callbacks=[...]). It does not change the training, except with `stop`.

    At the end of the training it frees the memory of the model's gradients, which are zero then.

    batches: the batches in the order in which the trainer used them, each a dict of arrays, [batch, length].
    gradients: the gradients of the first optimizer step by parameter name, before they are clipped.
    seconds: the time of each step.
    weights: the weights after `copy_after` steps, by name; {} when training did not get so far.
    """

    def __init__(self, device: Device, copy_after: int = 0, stop: bool = False) -> None:
        """copy_after: the step after which the weights are copied; 0 for none. stop: whether to end the training then."""
        self.batches: list[dict[str, np.ndarray]] = []
        self.gradients: dict[str, Any] = {}
        self.seconds: list[float] = []
        self.weights: dict[str, np.ndarray] = {}
        self._device, self._copy_after, self._stop = device, copy_after, stop
        self._began = 0.0

    def tensors(self, trainer: Any) -> dict[str, dict[str, Any]]:
        """The tensors of a training by kind, "weights", "gradients" and the optimizer's "moments", each by name."""
        state = trainer.optimizer.state_dict()
        return {
            "weights": dict(trainer.model.named_parameters()),
            "gradients": self.gradients,
            "moments": {name: value for name, value in state.items() if "moment" in name},
        }

    def on_load_data_end(self, args: Any, state: Any, control: Any, inputs: Any = None, **others: Any) -> None:
        self.batches.append({name: value.numpy() for name, value in inputs.items()})

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._began = time.perf_counter()

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        if not self.gradients:
            self.gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        synchronize(self._device)
        self.seconds.append(time.perf_counter() - self._began)
        if state.global_step == self._copy_after:
            self.weights = weights_of(model)
            control.should_training_stop = control.should_training_stop or self._stop

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        for weight in model.parameters():
            weight.clear_gradient(False)  # without the argument the memory stays, filled with zeros


def weights_of(network: Any) -> dict[str, np.ndarray]:
    """A copy of the weights, by name."""
    return {name: value.numpy().copy() for name, value in network.named_parameters()}


def one_step(network: Any, batch: Mapping[str, np.ndarray]) -> None:
    """A forward and a backward pass, which leave no gradient behind."""
    network(**{name: paddle.to_tensor(value) for name, value in batch.items()})[0].backward()
    network.clear_gradients()


def train_by_hand(
    network: Any, batches: Sequence[Mapping[str, np.ndarray]], rate: float
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A step of AdamW for each batch, without a trainer: the losses, and the weights after them, by name.

    batches: as in Recorder. rate: the learning rate of every step.
    """
    losses, optimizer = [], paddle.optimizer.AdamW(rate, parameters=network.parameters())
    for batch in batches:
        loss = network(**{name: paddle.to_tensor(value) for name, value in batch.items()})[0]
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        losses.append(float(loss))
    return np.array(losses), weights_of(network)


class Drawn(paddle.io.Dataset[float]):
    """Eight examples, each drawn when it is asked for."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__()
        self.draw = draw

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return self.draw()


def two_epochs(draw: Callable[[], float], seed: int) -> list[float]:
    """What the two workers of a loader draw in two epochs, eight numbers in each."""
    np.random.seed(seed)
    loader = paddle.io.DataLoader(Drawn(draw), batch_size=4, num_workers=2)
    return [float(number) for _ in range(2) for batch in loader for number in batch]
