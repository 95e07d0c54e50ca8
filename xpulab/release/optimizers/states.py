"""A loop of one's own with all that has a state: it goes on in new objects, and equals the uninterrupted one to the bit.

    check.grid("resume.states", STATES, one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)

A case trains a few layers for EPOCHS epochs of BATCHES batches, of which ACCUMULATED make a step, and saves at its moment:
weights, gradients, the optimizer's state under the structured names of the weights, the rate or its schedule, the scaler,
the random states, those of model parallelism too, and the place in the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.optimizer import lr

from xpulab import reference
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.optimizers import resumed
from xpulab.release.optimizers.optimizer_options import for_float16

WIDTH, BATCH, BATCHES, ACCUMULATED, EPOCHS = 4, 2, 4, 2, 3
"""Inputs and outputs of a layer, rows of a batch, batches of an epoch, batches of a step, epochs."""

RATE = 0.05

RATES: dict[str, Callable[[], Any]] = {
    "a number": lambda: RATE,
    "warmup, then a cosine": lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(RATE, T_max=4), 2, 0.0, RATE),
}
"""By name what makes the learning rate of an optimizer."""

STREAM = "dropout of a part"
"""The random stream of model parallelism that every second layer draws from."""

STATES = Grid(
    {
        "optimizer": tuple(reference.OPTIMIZERS),
        "dtype": ("float32", "float64"),
        "rate": RATES,
        "saved": {"after a step": BATCHES + 2, "inside a step": BATCHES + 1, "before the first step": 0},
        "layers": (2, 11),
        "dropout": (0.0, 0.5),
        "order": ("of the epoch", "drawn"),
        "format": resumed.FORMATS,
        "scaler": ("none", "dynamic"),
    },
    {
        "a scaler does not divide float64": lambda dtype, scaler: dtype == "float64" and scaler != "none",
        "Rprop refuses schedules": lambda optimizer, rate: optimizer == "Rprop" and rate is not RATES["a number"],
    },
    {"saved": ["before the first step"]},
)
"""order: of the batches, from the number of the epoch, or drawn from numpy's random state."""


class _Layers(paddle.nn.Layer):
    def __init__(self, count: int, dropout: float) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, WIDTH) for _ in range(count)])
        self.dropout = dropout

    def forward(self, values: Any) -> Any:
        for number, layer in enumerate(self.layers):
            with get_rng_state_tracker().rng_state(STREAM) if number % 2 else nullcontext():
                values = values + F.dropout(paddle.tanh(layer(values)), self.dropout, training=self.training)
        return values


class _Run:
    """Layers, optimizer, rate, scaler and the place in the data of a case. The other one has other values."""

    def __init__(self, case: Case, data: Sequence[np.ndarray], is_other: bool) -> None:
        values = np.random.default_rng([case.seed, is_other])
        tracker = get_rng_state_tracker()
        tracker.reset()
        tracker.add(STREAM, case.seed + 7 + is_other)
        self.network = _Layers(case.layers, case.dropout)
        for weight in self.network.parameters():
            weight.set_value(paddle.to_tensor(0.5 * values.standard_normal(weight.shape).astype("float32")))
        self.network.to(dtype=case.dtype)
        self.case, self.data, self.rate = case, data, RATES[case.labels["rate"]]()
        options = {"learning_rate": self.rate, "parameters": self.network.parameters()}
        self.optimizer = getattr(paddle.optimizer, case.optimizer)(**options)
        with for_float16():
            self.scaler = paddle.amp.GradScaler(case.scaler == "dynamic", init_loss_scaling=1024.0, incr_every_n_steps=2)
        rows = range(BATCH * BATCHES)
        self.sampler: Any = paddle.io.BatchSampler(rows, shuffle=True, batch_size=BATCH)
        if case.order == "of the epoch":
            self.sampler = paddle.io.DistributedBatchSampler(rows, BATCH, num_replicas=1, rank=0, shuffle=True)
        self.batches: list[list[int]] = []  # of the epoch, empty where none has begun

    def step(self, number: int) -> resumed.Read:
        """Train on a batch; what is read is the loss and all of the state."""
        self.batches = self.batches or list(self.sampler)
        batch = self.batches[number % BATCHES]
        inputs, targets = (paddle.to_tensor(part[batch]).astype(self.case.dtype) for part in self.data)
        loss = ((self.network(inputs) - targets) ** 2).mean()
        with for_float16():
            scaled = self.scaler.scale(loss)
        scaled.backward()
        if (number + 1) % ACCUMULATED == 0:
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.clear_grad()
            if isinstance(self.rate, lr.LRScheduler):
                self.rate.step()
        if (number + 1) % BATCHES == 0:
            self.batches = []
        tensors, others = self.state()
        text = np.frombuffer(repr(others[:3]).encode(), np.uint8)
        return {**tensors, "loss": float(loss), "others": text, "drawn": paddle.rand([2])}

    def state(self) -> resumed.State:
        weights = dict(self.network.named_parameters())
        tensors = {name: value for name, value in self.network.state_dict().items()}
        tensors |= {f"{name} gradient": weight.grad for name, weight in weights.items() if weight.grad is not None}
        tensors |= resumed.of_optimizer(self.optimizer, weights)
        schedule = self.optimizer.state_dict().get("LR_Scheduler")
        drawn: Any = np.random.get_state()
        random = paddle.get_rng_state(), get_rng_state_tracker().get_states_tracker(), (drawn[0], drawn[1].tolist(), *drawn[2:])
        place = self.batches, getattr(self.sampler, "epoch", 0)
        return tensors, (schedule, self.scaler.state_dict(), place, random)

    def restore(self, tensors: Mapping[str, Any], others: Any) -> None:
        schedule, scaler, (self.batches, epoch), (random, streams, drawn) = others
        weights = dict(self.network.named_parameters())
        self.network.set_state_dict({name: tensors[name] for name in weights})
        for name, weight in weights.items():
            if f"{name} gradient" in tensors:
                weight.grad = tensors[f"{name} gradient"]
        resumed.set_of_optimizer(self.optimizer, weights, tensors, schedule)
        if scaler:
            self.scaler.load_state_dict(scaler)
        if self.case.order == "of the epoch":
            self.sampler.set_epoch(epoch)
        paddle.set_rng_state(random)
        get_rng_state_tracker().set_states_tracker(streams)
        np.random.set_state(drawn)


def measure(work: Path, case: Case) -> Compared:
    """Train, and again in new objects from what was saved on the way. work: a folder for the files."""
    rng = case.rng()
    data = [rng.standard_normal((BATCH * BATCHES, WIDTH)).astype("float32") for _ in range(2)]
    paddle.seed(case.seed)
    np.random.seed(case.seed)
    return resumed.compared(work, case, BATCHES * EPOCHS, partial(_Run, case, data))


add_row = add_row_of(lambda case: [(case.optimizer.lower(), case.dtype, "")])
