"""GradScaler with one optimizer and two, whose gradients overflow together or apart, saved and gone on with as `resumed` says.

    check.grid("sft.scalers", scalers(types), one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)

Each optimizer has two weights and takes plain steps with drawn gradients, which are clipped by a function where they are
divided first. Read are the weights, the norms that the function returns, and the scaler's factor and counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import paddle
from paddle.nn.utils import clip_grad_norm_, clip_grad_value_

from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.optimizers import resumed

STEPS, RATE = 9, 0.1
SHAPES = ((3, 2), (5,))
"""Steps, the learning rate, and the shapes of the weights of an optimizer."""

Overflow = Callable[[int, int], float]
"""What the gradients in a step of one optimizer are multiplied by, both counted from 0."""

OVERFLOWS: dict[str, Overflow] = {
    "none": lambda step, which: 1.0,
    "in some steps": lambda step, which: np.inf if step in (1, 2, 5, 7) else 1.0,
    "not a number in some steps": lambda step, which: np.nan if step in (2, 3, 4) else 1.0,
    "of the first alone": lambda step, which: np.inf if step in (1, 3) and which == 0 else 1.0,
    "of the second alone": lambda step, which: np.inf if step in (1, 3) and which == 1 else 1.0,
}
BY_STEP, ONE_BY_ONE, ALL_FIRST, MINIMIZE = "by step", "unscale_, then step", "unscale_ of all, then step", "by minimize"
CLIPS: dict[str, float | None] = {"none": None, "norm": 2.0, "sum": 1.0, "largest": np.inf, "value": 0.0}
"""By name the norm_type of clip_grad_norm_, or 0 for clip_grad_value_."""

MOST = 0.7
"""The norm, or value, that is left."""


@contextmanager
def for_float16() -> Iterator[None]:
    """Within it a scaler is made, and scales, as for float16.

    On the CPU Paddle switches scalers off, although its kernels are there: here it takes the CPU for a card.
    """
    if not str(paddle.get_device()).startswith("cpu"):
        with paddle.amp.auto_cast(dtype="float16"):
            yield
        return
    tracer = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
    state = SimpleNamespace(amp_dtype="float16")
    with patch.multiple(paddle.amp.grad_scaler, _dygraph_tracer=lambda: tracer, amp_global_state=lambda: state):
        yield


def scalers(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types that the device has."""
    return Grid(
        {
            "optimizers": (1, 2),
            "dtype": types,
            "overflow": OVERFLOWS,
            "order": (BY_STEP, ONE_BY_ONE, ALL_FIRST, MINIMIZE),
            "clip": CLIPS,
            "init_loss_scaling": (1024.0, 8.0),
            "incr_ratio": (2.0, 4.0),
            "decr_ratio": (0.5, 0.25),
            "incr_every_n_steps": (1, 3),
            "decr_every_n_nan_or_inf": (1, 2),
            "use_dynamic_loss_scaling": (True, False),
            "saved": {"before the first step": 0, "after a step": 2, "late": 4},
        },
        {
            "float64, which is not divided, is the smallest case": lambda dtype, optimizers, overflow, order: (
                dtype == "float64" and (optimizers, overflow, order) != (1, OVERFLOWS["none"], BY_STEP)
            ),
            "one alone is apart from nobody": lambda optimizers, overflow, order: (
                optimizers == 1 and (overflow in list(OVERFLOWS.values())[3:] or order == ALL_FIRST)
            ),
            "what is clipped is divided first": lambda order, clip: clip is not None and order in (BY_STEP, MINIMIZE),
            "minimize changes the factor": lambda optimizers, order: optimizers == 2 and order == MINIMIZE,
        },
    )


class _Scaled:
    """A scaler and its optimizers. slopes: by step and optimizer the gradients."""

    def __init__(self, case: Case, slopes: Sequence[Sequence[Sequence[np.ndarray]]], is_other: bool) -> None:
        self.case, self.slopes = case, slopes
        self.weights = [[paddle.create_parameter(list(shape), case.dtype) for shape in SHAPES] for _ in range(case.optimizers)]
        for weight in (weight for each in self.weights for weight in each):
            weight.set_value(paddle.full(weight.shape, 3.0 if is_other else 1.0, case.dtype))
        given = {"multi_precision": True} if case.dtype in ("float16", "bfloat16") else {}
        self.optimizers = [paddle.optimizer.SGD(RATE, each, **given) for each in self.weights]
        names = ("incr_ratio", "decr_ratio", "incr_every_n_steps", "decr_every_n_nan_or_inf", "use_dynamic_loss_scaling")
        options = {} if is_other else {name: getattr(case, name) for name in names}
        with for_float16():
            self.scaler = paddle.amp.GradScaler(init_loss_scaling=4.0 if is_other else case.init_loss_scaling, **options)

    def step(self, number: int) -> resumed.Read:
        with for_float16():
            scaled = self.scaler.scale(self._loss(number))
        scaled.backward()
        norms = {}
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            if self.case.order == MINIMIZE:
                self.scaler.minimize(self.optimizers[0], scaled)
            if self.case.order == ALL_FIRST:
                for optimizer in self.optimizers:
                    self.scaler.unscale_(optimizer)
            for which, optimizer in enumerate(self.optimizers if self.case.order != MINIMIZE else ()):
                if self.case.order == ONE_BY_ONE:
                    self.scaler.unscale_(optimizer)
                norms |= self._clip(number, which)
                self.scaler.step(optimizer)
            if self.case.order != MINIMIZE:
                self.scaler.update()
        for optimizer in self.optimizers:
            optimizer.clear_grad()
        return {**norms, **self._read()}

    def _loss(self, number: int) -> Any:
        loss = paddle.zeros([])
        for which, weights in enumerate(self.weights):
            factor = self.case.overflow(number, which)
            for weight, slope in zip(weights, self.slopes[number][which], strict=True):
                loss = loss + (weight * paddle.to_tensor(factor * slope).astype(self.case.dtype)).astype("float32").sum()
        return loss

    def _clip(self, number: int, which: int) -> dict[str, float]:
        """The norm that clip_grad_norm_ returns; none of gradients that have none."""
        if self.case.clip == 0:
            clip_grad_value_(self.weights[which], MOST)
        elif self.case.clip:
            norm = clip_grad_norm_(self.weights[which], MOST, self.case.clip)
            if self.case.overflow(number, which) == 1:
                return {f"norm {which}": float(norm)}
        return {}

    def _read(self) -> resumed.Read:
        held = self.scaler.state_dict()
        read = {name: float(np.ravel(held[name])[0]) for name in ("scale", "incr_count", "decr_count")}
        for which, (optimizer, weights) in enumerate(zip(self.optimizers, self.weights, strict=True)):
            copies = optimizer._master_weights
            values = {f"weight {which}.{place}": copies.get(each.name, each) for place, each in enumerate(weights)}
            read |= {name: value.astype("float64").numpy() for name, value in values.items()}
        return read

    def state(self) -> Any:
        held = [resumed.of_optimizer(*each) for each in self._named()]
        return {"scaler": self.scaler.state_dict(), "weights": self.weights, "optimizers": held}

    def restore(self, state: Any) -> None:
        self.scaler.load_state_dict(state["scaler"])
        for (optimizer, weights), values, held in zip(self._named(), state["weights"], state["optimizers"], strict=True):
            for weight, value in zip(weights.values(), values, strict=True):
                weight.set_value(value)
            resumed.set_of_optimizer(optimizer, weights, held)

    def _named(self) -> list[tuple[Any, dict[str, Any]]]:
        named = [{str(place): weight for place, weight in enumerate(each)} for each in self.weights]
        return list(zip(self.optimizers, named, strict=True))


def measure(work: Path, case: Case) -> Compared:
    """Take the steps on the device in use. work: a folder. Rounding: float32 keeps 24 bits, at 8 places of a step."""
    rng = case.rng()
    drawn = [[[rng.standard_normal(shape) for shape in SHAPES] for _ in range(case.optimizers)] for _ in range(STEPS)]
    exact = [
        [[paddle.to_tensor(slope).astype(case.dtype).astype("float64").numpy() for slope in each] for each in of_step]
        for of_step in drawn
    ]
    right = _reference(case, exact)
    bounds = [{name: 8 * (number + 1) * 2.0**-24 * 4 for name in read} for number, read in enumerate(right)]
    return resumed.compared(work, STEPS, case.saved, partial(_Scaled, case, exact), right, bounds)


add_row = add_row_of(lambda case: [("check_finite_and_unscale", case.dtype, ""), ("sgd", case.dtype, "")])


def _reference(case: Case, slopes: Sequence[Sequence[Sequence[np.ndarray]]]) -> list[dict[str, Any]]:
    """What is read after each step: an optimizer whose gradients overflow takes none, and the scaler counts the step as bad."""
    weights = [[np.ones(shape) for shape in SHAPES] for _ in range(case.optimizers)]
    scale, good, bad, read = case.init_loss_scaling, 0, 0, []
    for number, of_step in enumerate(slopes):
        factors = [case.overflow(number, which) for which in range(case.optimizers)]
        norms = {}
        for which, gradients in enumerate(of_step):
            if factors[which] != 1:
                continue
            if case.clip == 0:
                gradients = [np.clip(each, -MOST, MOST) for each in gradients]
            elif case.clip:
                norm = norms[f"norm {which}"] = np.linalg.norm(np.concatenate([each.ravel() for each in gradients]), case.clip)
                gradients = [min(1.0, MOST / norm) * each for each in gradients]
            weights[which] = [weight - RATE * each for weight, each in zip(weights[which], gradients, strict=True)]
        if case.use_dynamic_loss_scaling:
            good, bad = (good + 1, 0) if all(factor == 1 for factor in factors) else (0, bad + 1)
            if good == case.incr_every_n_steps:
                scale, good = scale * case.incr_ratio, 0
            if bad == case.decr_every_n_nan_or_inf:
                scale, bad = scale * case.decr_ratio, 0
        values = {f"weight {which}.{place}": value for which, each in enumerate(weights) for place, value in enumerate(each)}
        read.append({**values, **norms, "scale": scale, "incr_count": good, "decr_count": bad})
    return read
