"""What has a state, saved at every kind of moment: the run goes on in new objects, and equals the uninterrupted one to the bit.

    check.grid("resume.states", states(device), one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)

A case trains a few layers for EPOCHS epochs of BATCHES batches, of which ACCUMULATED make a step, and saves at its moment:
weights, gradients, the optimizer's state under the structured names of the weights, the rate or its schedule, the scaler,
Paddle's random state and the place in the data. New objects, which begin with other values, load the files and go on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.optimizer import lr

from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.chapters.shared.states import digests
from xpulab.checks.compare import first_line
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

WIDTH, BATCH, BATCHES, ACCUMULATED, EPOCHS = 4, 2, 4, 2, 3
"""Inputs and outputs of a layer, rows of a batch, batches of an epoch, batches of a step, epochs."""

RATE, LATER = 0.05, 0.02
"""The learning rate, and the one that is set by hand after the first step."""

OPTIMIZERS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "AdamW": ("AdamW", {}),
    "AdamW with amsgrad": ("AdamW", {"amsgrad": True}),
    "Momentum": ("Momentum", {}),
    "Adagrad": ("Adagrad", {}),
    "Lamb": ("Lamb", {}),
}
"""By name a class of Paddle's and its options."""

RATES: dict[str, Callable[[], Any]] = {
    "a number": lambda: RATE,
    "set by hand": lambda: RATE,
    "warmup, then a cosine": lambda: lr.LinearWarmup(lr.CosineAnnealingDecay(RATE, T_max=4), 2, 0.0, RATE),
    "on a plateau": lambda: lr.ReduceOnPlateau(RATE, patience=2),
}
"""By name what makes the learning rate of an optimizer."""

MOMENTS = {
    "after a step": BATCHES + 2,
    "inside a step": BATCHES + 1,
    "before the first step": 0,
}
"""By name after how many batches the state is saved."""

NAMES = ("those of a new process", "others", "others, which the file has not")
"""What weights are called automatically: numbers from 0, or later ones because other layers were built before. The state of the
optimizer is saved under structured names and finds them; one with the automatic names of the saved run must raise an error."""

FORMATS: dict[str, dict[str, Any]] = {"pickle": {}, "safetensors": {"safetensors": True}}
"""By name the options of paddle.save and paddle.load."""


def states(device: str) -> Grid:
    """The grid. device: "cpu", "gpu", "xpu" or "sim"; on the CPU Paddle switches the scaler off, so there is no axis for it."""
    scaler = {} if device == "cpu" else {"scaler": ("none", "dynamic")}
    return Grid(
        {
            "optimizer": OPTIMIZERS,
            "dtype": ("float32", "float64"),
            "rate": RATES,
            "moment": MOMENTS,
            "layers": (2, 11),
            "names": NAMES,
            "dropout": (0.0, 0.5),
            "order": ("as they are", "shuffled in each epoch"),
            "format": FORMATS,
            **scaler,
        },
        {
            "before the first step an optimizer has no names": lambda moment, names: not moment and names == NAMES[2],
        },
        hollow={"names": [NAMES[2]], "moment": ["before the first step"]},
    )


@dataclass(frozen=True)
class Compared:
    """Digests by name, of what the uninterrupted run has after the moment and of what was in memory at the moment.

    resumed: the same of the run in new objects. lacking: of one that began without the last weight.
    Where the file has other names, each says whether going on raises: it must, it does, it does with the right names.
    """

    whole: Mapping[str, np.ndarray]
    resumed: Mapping[str, np.ndarray]
    lacking: Mapping[str, np.ndarray]


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
        kind, options = case.optimizer
        self.optimizer = getattr(paddle.optimizer, kind)(self.rate, parameters=self.network.parameters(), **options)
        dynamic = case.labels.get("scaler") == "dynamic"
        self.scaler = paddle.amp.GradScaler(enable=dynamic, init_loss_scaling=1024.0, incr_every_n_steps=2)
        is_shuffled = case.order != "as they are"
        rows = range(BATCH * BATCHES)
        self.sampler = paddle.io.DistributedBatchSampler(rows, BATCH, num_replicas=1, rank=0, shuffle=is_shuffled)
        self.batches: list[list[int]] = []  # of the epoch, empty where none has begun

    def train(self, data: tuple[np.ndarray, np.ndarray], until: int) -> list[float]:
        """Train until so many batches are done; returns the loss of each."""
        losses = []
        while self.done < until:
            self.batches = self.batches or list(self.sampler)
            for batch in self.batches[self.done % BATCHES :]:
                inputs, targets = (paddle.to_tensor(part[batch]).astype(self.case.dtype) for part in data)
                loss = ((self.network(inputs) - targets) ** 2).mean()
                with paddle.amp.auto_cast(enable=self.scaler.is_enable(), dtype="float16"):  # else the scaler is switched off
                    scaled = self.scaler.scale(loss)
                scaled.backward()
                losses.append(float(loss))
                self.done += 1
                if self.done % ACCUMULATED == 0:
                    self._step()
                if self.done % BATCHES == 0:
                    self.batches = []
                if self.done == until:
                    break
        return losses

    def _step(self) -> None:
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.clear_grad()
        if self.case.labels["rate"] == "set by hand" and self.done == ACCUMULATED:
            self.optimizer.set_lr(LATER)
        if isinstance(self.rate, lr.ReduceOnPlateau):
            self.rate.step(1.0)  # an evaluation that does not get better
        elif isinstance(self.rate, lr.LRScheduler):
            self.rate.step()

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
        place = {"batches": self.done, "rate": self.optimizer.get_lr(), "schedule": held.get("LR_Scheduler")}
        return tensors, {**place, "scaler": self.scaler.state_dict()}

    def restore(self, tensors: Mapping[str, Any], others: Mapping[str, Any], called: Mapping[str, str]) -> None:
        """Take over what `state` returned in another run. called: by structured name that of a weight for the optimizer."""
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
            held |= {f"{called[name]}_{key.removeprefix(begin)}": value for key, value in of_weight.items()}
        if others["schedule"] is not None:
            held["LR_Scheduler"] = others["schedule"]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There are some unused values")  # LinearWarmup's own entry, which it uses
            self.optimizer.set_state_dict(held)
        if others["schedule"] is None:
            self.optimizer.set_lr(others["rate"])
        if self.scaler.is_enable():
            self.scaler.load_state_dict(others["scaler"])
        self.done = others["batches"]
        self.sampler.set_epoch(self.done // BATCHES)


def measure(work: Path, case: Case) -> Compared:
    """Train without an interruption, and again in new objects from what was saved on the way. work: a folder for the files."""
    rng = case.rng()
    rows = (BATCH * BATCHES, WIDTH)
    data = (rng.standard_normal(rows).astype("float32"), rng.standard_normal(rows).astype("float32"))
    last = BATCHES * EPOCHS
    with paddle.utils.unique_name.guard():
        run = _Run(case, rng)
        paddle.seed(case.seed)
        run.train(data, case.moment)
        saved = _save(run, work, case.format)
        whole = {**saved, **_after(run, run.train(data, last))}
    names = {name: weight.name for name, weight in run.network.named_parameters()}
    last_weight = f"weights.{list(run.network.state_dict())[-1]}"

    def go_on(leaves_out: str = "", called: Mapping[str, str] | None = None) -> dict[str, np.ndarray]:
        with paddle.utils.unique_name.guard() if case.names == NAMES[0] else nullcontext():
            if case.names != NAMES[0]:
                paddle.nn.Linear(1, 1)
            again = _Run(case, np.random.default_rng(case.seed))
            held = _load(again, work, case.format, leaves_out, called)
            return {**held, **_after(again, again.train(data, last))}

    if case.names != NAMES[2]:
        return Compared(whole, go_on(), go_on(leaves_out=last_weight))
    ends = {name: np.array([_raises(partial(go_on, called=used))]) for name, used in {"other": names, "own": None}.items()}
    return Compared({"raises": np.array([True])}, {"raises": ends["other"]}, {"raises": ends["own"]})


def _raises(action: Callable[[], Any]) -> bool:
    try:
        action()
    except Exception:  # whatever its class and words: it must not go on silently
        return True
    return False


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add a row: what is in the files, all later losses, the state at the end; the control lacks the last weight."""
    if isinstance(found, Exception):
        if reason := lacked(case.optimizer[0].lower(), case.dtype):
            rows.skip(case.name, reason)
        else:
            rows.equal(case.name, first_line(found), "no error", control="another error")
        return
    rows.bitwise(case.name, found.resumed, found.whole, control=found.lacking)


def _save(run: _Run, work: Path, options: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Write the files; returns digests of what was in memory."""
    tensors, others = run.state()
    paddle.save(tensors, str(work / "tensors"), **options)
    others["random"] = paddle.get_rng_state()
    paddle.save(others, str(work / "others"))
    return {f"saved {name}": value for name, value in digests(tensors).items()}


def _load(
    run: _Run, work: Path, options: Mapping[str, Any], leaves_out: str, called: Mapping[str, str] | None
) -> dict[str, np.ndarray]:
    """Restore a run from the files; returns digests of what they hold.

    leaves_out: a tensor that keeps its own value, or "". called: the names of weights for the optimizer, None for their own.
    """
    tensors = paddle.load(str(work / "tensors"), **options)
    held = {f"saved {name}": value for name, value in digests(tensors).items()}
    others = paddle.load(str(work / "others"))
    if leaves_out:
        tensors[leaves_out] = run.state()[0][leaves_out]
    run.restore(tensors, others, called or {name: weight.name for name, weight in run.network.named_parameters()})
    paddle.set_rng_state(others["random"])
    return held


def _after(run: _Run, losses: list[float]) -> dict[str, np.ndarray]:
    """Digests of the losses and of the state at the end; what is no tensor as its text."""
    tensors, others = run.state()
    text = np.frombuffer(repr(others).encode(), np.uint8)
    return {**digests(tensors), **digests({"losses": np.array(losses), "others": text})}
