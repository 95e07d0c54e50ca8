"""The schedules of paddle.optimizer.lr beside their formulas, from the first value on, and saved and gone on with as `resumed` says.

check.grid("sft.schedules", SCHEDULES, one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)
check.grid("sft.plateaus", PLATEAUS, one_by_one(partial(measure, work)), add_row, level=level, seed=seed, means=...)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.optimizer import lr

from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.optimizers import resumed

STEPS, RATE, LEAST, WARMUP = 12, 0.5, 0.1, 3
"""Values that are read of a schedule, its rate, where it has one the least rate, and the steps of a warmup."""

Made = tuple[Callable[..., Any], Callable[[int], float]]
"""What makes a schedule, given last_epoch, and its rate in an epoch, counted from 0."""


def _cosine(share: float, begin: float = RATE, end: float = LEAST) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * share)) / 2


def _polynomial(epoch: int, steps: float) -> float:
    return LEAST + (RATE - LEAST) * (1 - min(epoch, steps) / steps) ** 2.5


def _restarts(factor: int, epoch: int) -> float:
    length = 2
    while epoch >= length:
        epoch, length = epoch - length, length * factor
    return _cosine(epoch / length)


def _one_cycle(is_linear: bool, epoch: int, ends: tuple[float, ...], rates: tuple[float, ...]) -> float:
    """ends: of the phases, the first one is 0. rates: there."""
    phase = max(0, min(int(np.searchsorted(ends, epoch)), len(ends) - 1) - 1)
    share = (epoch - ends[phase]) / (ends[phase + 1] - ends[phase])
    begin, end = rates[phase : phase + 2]
    return begin + (end - begin) * share if is_linear else _cosine(share, begin, end)


def _cyclic(epoch: int, scale: float = 1.0) -> float:
    place = epoch % 5
    return LEAST + (RATE - LEAST) * scale * (place / 2 if place <= 2 else (5 - place) / 3)


def _made(name: str, *given: Any, **options: Any) -> Callable[..., Any]:
    return partial(getattr(lr, name), *given, **options)


class Restarts(lr.CosineAnnealingWarmRestarts):
    """With its whole state in the state dict, of which Paddle's lacks the place in the cycle."""

    def state_keys(self) -> None:
        self.keys = ["last_epoch", "last_lr", "T_cur", "T_i"]


_TWO, _THREE = (0.0, 0.4 * 40 - 1, 39.0), (0.0, 0.3 * 40 - 1, 0.6 * 40 - 2, 39.0)
_RATES = RATE / 5, RATE, 0.01
_ONE = {"divide_factor": 5.0, "end_learning_rate": 0.01, "phase_pct": 0.4}
_CYCLE = LEAST, RATE, 2, 3
MADE: dict[str, Made] = {
    "LambdaDecay": (_made("LambdaDecay", RATE, lambda t: 1 / (1 + t)), lambda t: RATE / (1 + t)),
    "NoamDecay": (_made("NoamDecay", 16, 3, RATE), lambda t: RATE / 4 * min(max(t, 1) ** -0.5, t * 3**-1.5)),
    "PiecewiseDecay": (_made("PiecewiseDecay", [2, 5], [0.5, 0.2, 0.05]), lambda t: (0.5, 0.2, 0.05)[(t >= 2) + (t >= 5)]),
    "NaturalExpDecay": (_made("NaturalExpDecay", RATE, 0.3), lambda t: RATE * math.exp(-0.3 * t)),
    "InverseTimeDecay": (_made("InverseTimeDecay", RATE, 0.3), lambda t: RATE / (1 + 0.3 * t)),
    "ExponentialDecay": (_made("ExponentialDecay", RATE, 0.7), lambda t: RATE * 0.7**t),
    "StepDecay": (_made("StepDecay", RATE, 3, 0.3), lambda t: RATE * 0.3 ** (t // 3)),
    "MultiStepDecay": (_made("MultiStepDecay", RATE, [2, 5], 0.3), lambda t: RATE * 0.3 ** ((t >= 2) + (t >= 5))),
    "MultiplicativeDecay": (
        _made("MultiplicativeDecay", RATE, lambda t: t / (t + 1)),
        lambda t: RATE / (t + 1),
    ),
    "PolynomialDecay": (_made("PolynomialDecay", RATE, 5, LEAST, 2.5), lambda t: _polynomial(t, 5)),
    "PolynomialDecay, again": (
        _made("PolynomialDecay", RATE, 5, LEAST, 2.5, cycle=True),
        lambda t: _polynomial(t, 5 * max(1, math.ceil(t / 5))),
    ),
    "CosineAnnealingDecay": (_made("CosineAnnealingDecay", RATE, 4, LEAST), lambda t: _cosine(t / 4)),
    "CosineAnnealingWarmRestarts": (_made("CosineAnnealingWarmRestarts", RATE, 2, 1, LEAST), partial(_restarts, 1)),
    "restarts, with its whole state": (partial(Restarts, RATE, 2, 1, LEAST), partial(_restarts, 1)),
    "longer restarts, with its whole state": (partial(Restarts, RATE, 2, 2, LEAST), partial(_restarts, 2)),
    "LinearLR": (_made("LinearLR", RATE, 5, 0.25, 0.8), lambda t: RATE * (0.25 + 0.55 * min(t, 5) / 5)),
    "OneCycleLR": (_made("OneCycleLR", RATE, 40, **_ONE), lambda t: _one_cycle(False, t, _TWO, _RATES)),
    "OneCycleLR, linear": (
        _made("OneCycleLR", RATE, 40, **_ONE, anneal_strategy="linear"),
        lambda t: _one_cycle(True, t, _TWO, _RATES),
    ),
    "OneCycleLR, three phases": (
        _made("OneCycleLR", RATE, 40, **{**_ONE, "phase_pct": 0.3}, three_phase=True),
        lambda t: _one_cycle(False, t, _THREE, (*_RATES[:2], *_RATES[::2])),
    ),
    "CyclicLR": (_made("CyclicLR", *_CYCLE), _cyclic),
    "CyclicLR, halved": (_made("CyclicLR", *_CYCLE, mode="triangular2"), lambda t: _cyclic(t, 0.5 ** (t // 5))),
    "CyclicLR, by exponent": (
        _made("CyclicLR", *_CYCLE, mode="exp_range", exp_gamma=0.9),
        lambda t: _cyclic(t, 0.9**t),
    ),
    "CyclicLR, by function": (
        _made("CyclicLR", *_CYCLE, scale_fn=lambda cycle: 1 / cycle),
        lambda t: _cyclic(t, 1 / (1 + t // 5)),
    ),
    "CyclicLR, by function of steps": (
        _made("CyclicLR", *_CYCLE, scale_fn=lambda step: 1 / (1 + step), scale_mode="iterations"),
        lambda t: _cyclic(t, 1 / (1 + t)),
    ),
}
"""By name a schedule and its formula."""

_SAVED = {"before the first step": 0, "after a step": 2, "late": STEPS - 2}
_HOLDERS = ("itself", "an optimizer", "an optimizer, given later")

SCHEDULES = Grid(
    {
        "schedule": MADE,
        "warmup": (False, True),
        "begins": {"at first": -1, "later": 2},
        "steps": {"step()": 0, "step(epoch)": 1, "step(epoch), every second": 2},
        "saved": _SAVED,
        "held_by": _HOLDERS,
    }
)
"""begins: last_epoch. steps: how many epochs a step goes on, 0 for one epoch that is not named."""

PLATEAUS = Grid(
    {
        "mode": ("min", "max"),
        "threshold": {"rel": ("rel", 0.05), "abs": ("abs", 0.02)},
        "patience": (0, 2),
        "cooldown": (0, 2),
        "least": {"0": (0.0, 1e-8), "a least rate": (0.2, 1e-8), "a least change": (0.0, 0.1)},
        "metric": {"number": float, "array": np.array, "tensor": lambda value: paddle.to_tensor(value, "float64")},
        "saved": _SAVED,
        "held_by": _HOLDERS,
    }
)
"""ReduceOnPlateau. threshold: threshold_mode and threshold. least: min_lr and epsilon."""


class _Scheduled:
    """A schedule that is held by an optimizer. arguments: of its step with a number. keys: what is read of it."""

    def __init__(self, new: Callable[[], Any], case: Case, arguments: Callable[[int], tuple[Any, ...]], is_other: bool) -> None:
        self.schedule, self.arguments, self.case = new(), arguments, case
        is_late = case.held_by == _HOLDERS[2]
        weight: Any = paddle.create_parameter([1], "float32")
        self.optimizer = paddle.optimizer.SGD(1.0 if is_late else self.schedule, [weight])
        if is_late:
            self.optimizer.set_lr_scheduler(self.schedule)
        for number in range(1, 4 if is_other else 1):
            self.schedule.step(*arguments(number))

    def step(self, number: int) -> resumed.Read:
        if number:
            self.schedule.step(*self.arguments(number))
        names = ("last_epoch", "last_lr", "num_bad_epochs", "cooldown_counter", "best")
        read = {name: float(getattr(self.schedule, name) or 0) for name in names if hasattr(self.schedule, name)}
        return {**read, "called": self.schedule(), "of the optimizer": self.optimizer.get_lr()}

    def state(self) -> Any:
        return (self.schedule if self.case.held_by == "itself" else self.optimizer).state_dict()

    def restore(self, state: Any) -> None:
        (self.schedule if self.case.held_by == "itself" else self.optimizer).set_state_dict(state)


def measure(work: Path, case: Case) -> Compared:
    """Read a schedule STEPS times. work: a folder. Python computes in double precision, so 1e-12 leaves room for all rounding."""
    new, arguments, right = (_scheduled if "schedule" in case.labels else _plateau)(case)
    right = [{**each, "called": each["last_lr"], "of the optimizer": each["last_lr"]} for each in right]
    bounds = [dict.fromkeys(each, 1e-12) for each in right]
    return resumed.compared(work, STEPS, case.saved, partial(_Scheduled, new, case, arguments), right, bounds)


def _scheduled(case: Case) -> tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]], list[dict[str, float]]]:
    make, formula = case.schedule

    def new() -> Any:
        if case.warmup:
            return lr.LinearWarmup(make(), WARMUP, 0.05, 0.4, last_epoch=case.begins)
        return make(last_epoch=case.begins)

    def epoch(number: int) -> int:
        return int(case.begins + 1 + number * (case.steps or 1))

    def rate(at: int) -> float:
        if not case.warmup:
            return formula(at)
        return formula(at - WARMUP) if at >= WARMUP else 0.05 + (0.4 - 0.05) * at / WARMUP

    right = [{"last_epoch": float(epoch(number)), "last_lr": rate(epoch(number))} for number in range(STEPS)]
    return new, lambda number: (epoch(number),) if case.steps else (), right


def _plateau(case: Case) -> tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]], list[dict[str, float]]]:
    sign, (how, threshold), (least, change) = -1 if case.mode == "max" else 1, case.threshold, case.least
    metrics = 1 + sign * np.round(case.rng().choice([-0.2, -0.03, 0.01, 0.1], STEPS), 3)
    options = {"mode": case.mode, "factor": 0.5, "patience": case.patience, "threshold": threshold, "threshold_mode": how}
    new = partial(lr.ReduceOnPlateau, RATE, **options, cooldown=case.cooldown, min_lr=least, epsilon=change)
    rate, best, bad, rest = RATE, 0.0, 0, 0
    right = []
    for number, metric in enumerate(metrics):
        if number and rest:
            rest -= 1
        elif number:
            margin = threshold * (best if how == "rel" else 1)
            is_better = number == 1 or sign * metric < sign * best - margin
            best, bad = (float(metric), 0) if is_better else (best, bad + 1)
            if bad > case.patience:
                rest, bad = case.cooldown, 0
                lower = max(rate * 0.5, least)
                rate = lower if rate - lower > change else rate
        counts = {"last_epoch": number, "num_bad_epochs": bad, "cooldown_counter": rest, "best": best, "last_lr": rate}
        right.append({name: float(value) for name, value in counts.items()})
    return new, lambda number: (case.metric(float(metrics[number])),), right
