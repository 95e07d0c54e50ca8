"""What has a state, saved at every kind of moment: the run goes on in new objects, and equals the uninterrupted one to the bit.

    check.grid("resume.states", states(device), one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)

A case trains a few layers for EPOCHS epochs of BATCHES batches, of which ACCUMULATED make a step, and saves at its moment:
weights, gradients, the optimizer's state under the structured names of the weights, the rate or its schedule, the scaler,
Paddle's random state and the place in the data. New objects, which begin with other values, load the files and go on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.optimizer import lr

from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.chapters.shared.states import digests
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

WIDTH, BATCH, BATCHES, ACCUMULATED, EPOCHS = 4, 2, 4, 2, 3
"""Inputs and outputs of a layer, rows of a batch, batches of an epoch, batches of a step, epochs."""

RATE = 0.05

RATES: dict[str, Callable[[], Any]] = {
    "a number": lambda: RATE,
    "warmup, then a cosine": lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(RATE, T_max=4), 2, 0.0, RATE),
}
"""By name what makes the learning rate of an optimizer."""

MOMENTS = {"after a step": BATCHES + 2, "inside a step": BATCHES + 1, "before the first step": 0}
"""By name after how many batches the state is saved."""

FORMATS: dict[str, dict[str, Any]] = {"pickle": {}, "safetensors": {"safetensors": True}}
"""By name the options of paddle.save and paddle.load."""


def states(device: str) -> Grid:
    """The grid. device: "cpu", "gpu", "xpu" or "sim"; on the CPU Paddle switches the scaler off, so there is no axis for it."""
    scaler = {} if device == "cpu" else {"scaler": ("none", "dynamic")}
    return Grid(
        {
            "optimizer": ("AdamW", "Momentum"),
            "dtype": ("float32", "float64"),
            "rate": RATES,
            "moment": MOMENTS,
            "layers": (2, 11),
            "dropout": (0.0, 0.5),
            "format": FORMATS,
            **scaler,
        },
        uninformative={"moment": ["before the first step"]},
    )


class _Layers(paddle.nn.Layer):
    def __init__(self, count: int, dropout: float) -> None:
        super().__init__()
        self.layers = paddle.nn.LayerList([paddle.nn.Linear(WIDTH, WIDTH) for _ in range(count)])
        self.dropout = dropout

    def forward(self, values: Any) -> Any:
        for layer in self.layers:
            values = values + F.dropout(paddle.tanh(layer(values)), self.dropout, training=self.training)
        return values


class _Run:
    """Layers, optimizer, rate, scaler and the place in the data of a case. values: of the weights, drawn by this generator."""

    def __init__(self, case: Case, values: np.random.Generator) -> None:
        self.network = _Layers(case.layers, case.dropout)
        for weight in self.network.parameters():
            weight.set_value(paddle.to_tensor(0.5 * values.standard_normal(weight.shape).astype("float32")))
        self.network.to(dtype=case.dtype)
        self.case, self.rate, self.done = case, RATES[case.labels["rate"]](), 0
        self.optimizer = getattr(paddle.optimizer, case.optimizer)(self.rate, parameters=self.network.parameters())
        dynamic = case.labels.get("scaler") == "dynamic"
        self.scaler = paddle.amp.GradScaler(enable=dynamic, init_loss_scaling=1024.0, incr_every_n_steps=2)
        rows = range(BATCH * BATCHES)
        self.sampler = paddle.io.DistributedBatchSampler(rows, BATCH, num_replicas=1, rank=0, shuffle=True)
        self.batches: list[list[int]] = []  # of the epoch, empty where none has begun

    def train(self, data: Sequence[np.ndarray], until: int) -> list[float]:
        """Train until so many batches are done; returns the loss of each."""
        losses = []
        while self.done < until:
            self.batches = self.batches or list(self.sampler)
            batch = self.batches[self.done % BATCHES]
            inputs, targets = (paddle.to_tensor(part[batch]).astype(self.case.dtype) for part in data)
            loss = ((self.network(inputs) - targets) ** 2).mean()
            with paddle.amp.auto_cast(enable=self.scaler.is_enable(), dtype="float16"):  # else the scaler is switched off
                scaled = self.scaler.scale(loss)
            scaled.backward()
            losses.append(float(loss))
            self.done += 1
            if self.done % ACCUMULATED == 0:
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.clear_grad()
                if isinstance(self.rate, lr.LRScheduler):
                    self.rate.step()
            if self.done % BATCHES == 0:
                self.batches = []
        return losses

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """By name the tensors of the state, without nesting; and what is no tensor."""
        weights = dict(self.network.named_parameters())
        held = self.optimizer.state_dict()
        tensors = {f"weights.{name}": value for name, value in self.network.state_dict().items()}
        tensors |= {f"gradients.{name}": weight.grad for name, weight in weights.items() if weight.grad is not None}
        for name, weight in weights.items():
            begin = f"{weight.name}_"
            of_weight = {key.removeprefix(begin): value for key, value in held.items() if key.startswith(begin)}
            tensors |= {f"optimizer.{name}.{key}": value for key, value in of_weight.items()}
        return tensors, {"batches": self.done, "schedule": held.get("LR_Scheduler"), "scaler": self.scaler.state_dict()}

    def restore(self, tensors: Mapping[str, Any], others: Mapping[str, Any]) -> None:
        """Take over what `state` returned in another run."""
        parts: dict[str, dict[str, Any]] = {"weights": {}, "gradients": {}, "optimizer": {}}
        for name, value in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = value
        self.network.set_state_dict(parts["weights"])
        held: dict[str, Any] = {}
        for name, weight in self.network.named_parameters():
            if name in parts["gradients"]:
                weight.grad = parts["gradients"][name]
            begin = f"{name}."
            of_weight = {key: value for key, value in parts["optimizer"].items() if key.startswith(begin)}
            held |= {f"{weight.name}_{key.removeprefix(begin)}": value for key, value in of_weight.items()}
        if others["schedule"] is not None:
            held["LR_Scheduler"] = others["schedule"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There are some unused values")  # LinearWarmup's own entry, which it uses
            self.optimizer.set_state_dict(held)
        if self.scaler.is_enable():
            self.scaler.load_state_dict(others["scaler"])
        self.done = others["batches"]
        self.sampler.set_epoch(self.done // BATCHES)


def measure(work: Path, case: Case) -> Compared:
    """Train without an interruption, and again in new objects from what was saved on the way. work: a folder for the files."""
    rng = case.rng()
    data = [rng.standard_normal((BATCH * BATCHES, WIDTH)).astype("float32") for _ in range(2)]
    run = _Run(case, rng)
    paddle.seed(case.seed)
    run.train(data, case.moment)
    tensors, others = run.state()
    right = _named("saved", tensors)
    paddle.save(tensors, str(work / "tensors"), **case.format)
    others["random"] = paddle.get_rng_state()
    paddle.save(others, str(work / "others"))
    right |= _after(run, run.train(data, BATCHES * EPOCHS))

    again = _Run(case, np.random.default_rng(case.seed))  # its weights have other automatic names
    tensors, others = paddle.load(str(work / "tensors"), **case.format), paddle.load(str(work / "others"))
    found = _named("saved", tensors)
    again.restore(tensors, others)
    paddle.set_rng_state(others["random"])
    found |= _after(again, again.train(data, BATCHES * EPOCHS))
    return Compared(found, right)


add_row = add_row_of(lambda case: [(case.optimizer.lower(), case.dtype, "")])


def _named(what: str, tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {f"{what} {name}": value for name, value in digests(tensors).items()}


def _after(run: _Run, losses: list[float]) -> dict[str, np.ndarray]:
    """Digests of the losses and of the state at the end; what is no tensor as its text."""
    tensors, others = run.state()
    text = np.frombuffer(repr(others).encode(), np.uint8)
    return {**_named("in the end", tensors), **digests({"losses": np.array(losses), "others": text})}
