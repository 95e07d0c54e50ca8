"""Options of optimizers together: Paddle's on given gradients, beside their formulas in double precision.

    check.grid("sft.optimizer-options", optimizers(types), one_by_one(partial(measure, work)), add_row, level=level, ...)
    check.grid("sft.scalers", scalers(types), one_by_one(partial(measure, work)), add_row, level=level, ...)

A case has three weights, of two axes, one axis and none, takes STEPS steps with random gradients, and compares after each the
weights, their float32 copies where an optimizer keeps some, all that it keeps of them, and the scaler's factor and counts; and
it goes on from a file, as `resumed` says. The order: gradients are divided by the factor of the scaler, then clipped, then
decay is added, then the update is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import paddle
from paddle import nn
from paddle.nn.utils import clip_grad_norm_, clip_grad_value_
from paddle.regularizer import L1Decay, L2Decay

from xpulab import reference
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared, wrong_values
from xpulab.checks.grid import Case, Grid
from xpulab.release.optimizers import resumed

STEPS, RATE, DECAY, MOST = 7, 0.05, 0.5, 0.7
"""Steps, as many as RAdam needs, the learning rate, the coefficient of weight decay, what the functions that clip leave."""

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "small": {"matrix": (4, 3), "vector": (5,), "number": ()},
    "a block": {"matrix": (128, 8), "vector": (512,), "number": (1,)},
    "past a block": {"matrix": (43, 3, 5), "vector": (513,), "number": (1, 1)},
}
"""By name the shapes of the weights; the CPU's Adam takes 512 elements at once."""

DEFAULTS: dict[str, Any] = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-2, "rho": 0.8, "momentum_decay": 0.1, "batch_num": 1}
DEFAULTS |= {"etas": (0.6, 1.3), "learning_rate_range": (0.02, 0.08), "lamb_weight_decay": 0.2}
"""Where an optimizer has the option. None but the last is Paddle's default. Epsilon is so large that a gradient of another size
makes another step, and that a small root makes no error large."""

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "amsgrad": {"amsgrad": True},
    "lazy": {"lazy_mode": True},
    "several at once": {"use_multi_tensor": True},
    "tensors": {"beta1": 0.7, "beta2": 0.85},
    "other rates": {"lr_ratio": lambda weight: 0.5 if weight.ndim == 1 else 1.0},
    "Nesterov": {"use_nesterov": True},
    "rescaled": {"rescale_grad": 0.5},
    "centered": {"centered": True},
    "centered, with momentum": {"centered": True, "momentum": 0.6},
    "from a sum": {"initial_accumulator_value": 0.5},
    "of three batches": {"batch_num": 3},
    "without decay": {"lamb_weight_decay": 0.0},
    "adapts always": {"lamb_weight_decay": 0.0, "always_adapt": True},
    "decay by function": {"exclude_from_weight_decay_fn": lambda weight: weight.ndim == 1},
    "decay by name": {"apply_decay_param_fun": None},
}
"""By name options that only some optimizers have. Of the last one a function says that vector and number have no decay."""

CLIPS: dict[str, Any] = {
    "none": None,
    "global norm": nn.ClipGradByGlobalNorm(1.0),
    "a global norm that is not reached": nn.ClipGradByGlobalNorm(1e4),
    "norm": nn.ClipGradByNorm(0.8),
    "value": nn.ClipGradByValue(0.5, -0.1),
    "value and its negative": nn.ClipGradByValue(0.5),
    "global norm, or nothing": nn.ClipGradByGlobalNorm(1.0, auto_skip_clip=True),
    "clip_grad_norm_": 2.0,
    "clip_grad_norm_ of sums": 1.0,
    "clip_grad_norm_ of the largest": float("inf"),
    "clip_grad_value_": 0.0,
}
"""By name what the optimizer does, or the norm_type of the function, 0 for the one that clips values."""

DECAYS = {"none": None, "a number": float, "L2Decay": L2Decay, "L1Decay": L1Decay}
GROUPS = ("one", "two", "two optimizers")
"""All weights together; or the matrix in a group of its own, which has a tenth of the rate and twice the decay; or the matrix
in an optimizer of its own."""

ODD = ("none", "does not train", "is not clipped", "has half the rate", "has its own decay")
"""What is special about the vector; its own decay is L1Decay with half of the coefficient."""

Overflow = Callable[[int, bool], float]
OVERFLOWS: dict[str, Overflow | None] = {
    "no scaler": None,
    "none": lambda step, is_matrix: 1.0,
    "of the matrix": lambda step, is_matrix: np.inf if is_matrix and step in (1, 4) else 1.0,
    "of the others": lambda step, is_matrix: np.nan if not is_matrix and step in (1, 2, 4) else 1.0,
    "of all": lambda step, is_matrix: np.inf if step in (0, 3, 4) else 1.0,
}
"""By name what gradients are multiplied by in a step, counted from 0."""

BY_STEP, ONE_BY_ONE, ALL_FIRST, MINIMIZE = "by step", "unscale_, then step", "unscale_ of all, then step", "by minimize"
FACTORS: dict[str, dict[str, Any]] = {
    "of float16": {"init_loss_scaling": 1024.0},
    "changes": {"init_loss_scaling": 8.0, "incr_ratio": 4.0, "decr_ratio": 0.25, "incr_every_n_steps": 1},
    "changes late": {"incr_every_n_steps": 2, "decr_every_n_nan_or_inf": 2},
    "fixed": {"init_loss_scaling": 16.0, "use_dynamic_loss_scaling": False},
}
"""By name the options of the scaler, in the place of Paddle's."""

SCALER = {"init_loss_scaling": 2.0**16, "incr_ratio": 2.0, "decr_ratio": 0.5, "incr_every_n_steps": 2000}
SCALER |= {"decr_every_n_nan_or_inf": 1, "use_dynamic_loss_scaling": True}
RATES = {"a number": None, "a schedule": lambda step: RATE * (1 - step / 2 / STEPS)}
"""Paddle's own options of a scaler. By name the learning rate of a step."""

PLAIN = {"form": {}, "size": SIZES["small"], "decay": None, "odd": "none", "order": BY_STEP, "rate": None}
PLAIN["factor"] = FACTORS["of float16"]
"""What a grid without these axes has."""


@cache
def _has(optimizer: str, *options: str) -> bool:
    return set(options) <= inspect.signature(getattr(paddle.optimizer, optimizer)).parameters.keys()


def optimizers(types: Sequence[str]) -> Grid:
    """The grid of optimizers. types: the floating types that the device has; weights of 16 bits have copies in float32."""
    return Grid(
        {
            "optimizer": tuple(reference.OPTIMIZERS),
            "form": FORMS,
            "dtype": types,
            "size": SIZES,
            "clip": {name: clip for name, clip in CLIPS.items() if not isinstance(clip, float)},
            "decay": DECAYS,
            "groups": GROUPS[:2],
            "odd": ODD,
            "overflow": {name: OVERFLOWS[name] for name in ("no scaler", "none", "of all")},
            "rate": RATES,
            "saved": resumed.MOMENTS,
            "format": resumed.FORMATS,
        },
        {
            "not every optimizer has each option": lambda optimizer, form: not _has(optimizer, *form),
            "a scaler does not divide float64": lambda dtype, overflow: dtype == "float64" and overflow is not None,
            "several at once are not of float64": lambda form, dtype: "use_multi_tensor" in form and dtype == "float64",
            "the CPU has no lr_ratio": lambda form: "lr_ratio" in form and _is_cpu(),
            "AdamW's decay, which is no part of the gradient, is a number": lambda optimizer, decay: (
                optimizer == "AdamW" and decay not in (None, float)
            ),
            "Lamb and Rprop have no such decay": lambda optimizer, decay: decay and not _has(optimizer, "weight_decay"),
            "AdamW has one decay": lambda optimizer, odd: optimizer == "AdamW" and odd == "has its own decay",
            "NAdam's decay is a number": lambda optimizer, decay: optimizer == "NAdam" and decay not in (None, float),
            "Rprop keeps its own rates": lambda optimizer, groups, odd: (
                optimizer == "Rprop" and (groups == "two" or odd == "has half the rate")
            ),
            "only weights of 16 bits have copies, which not every optimizer makes": lambda optimizer, dtype: (
                dtype in ("float16", "bfloat16") and not _has(optimizer, "multi_precision")
            ),
        },
        each="optimizer",
    )


def scalers(types: Sequence[str]) -> Grid:
    """The grid of one or two optimizers under one scaler; what it lacks of the other grid has the default there."""
    return Grid(
        {
            "optimizer": ("AdamW", "SGD"),
            "dtype": types,
            "groups": GROUPS[::2],
            "clip": CLIPS,
            "overflow": dict(reversed(OVERFLOWS.items())),
            "order": (BY_STEP, ONE_BY_ONE, ALL_FIRST, MINIMIZE),
            "factor": FACTORS,
            "saved": resumed.MOMENTS,
        },
        {
            "without a scaler nothing is divided": lambda overflow, order, factor: (
                overflow is None and (order != BY_STEP or factor != FACTORS["of float16"])
            ),
            "what a function clips is divided first": lambda clip, overflow, order: (
                isinstance(clip, float) and overflow is not None and order not in (ONE_BY_ONE, ALL_FIRST)
            ),
            "minimize takes one optimizer": lambda groups, order: groups != "one" and order == MINIMIZE,
            "float64 is not divided, which a few cases show": lambda optimizer, dtype, order, clip, groups: (
                dtype == "float64" and (optimizer, order, clip, groups) != ("SGD", BY_STEP, None, "one")
            ),
        },
    )


def _is_cpu() -> bool:
    return str(paddle.get_device()).startswith("cpu")


@contextmanager
def for_float16() -> Iterator[None]:
    """Within it a scaler is made, and scales, as for float16.

    On the CPU Paddle switches scalers off, although its kernels are there: here it takes the CPU for a card.
    """
    if not _is_cpu():
        with paddle.amp.auto_cast(dtype="float16"):
            yield
        return
    tracer = SimpleNamespace(_expected_place=SimpleNamespace(is_gpu_place=lambda: True))
    state = SimpleNamespace(amp_dtype="float16")
    with patch.multiple(paddle.amp.grad_scaler, _dygraph_tracer=lambda: tracer, amp_global_state=lambda: state):
        yield


class _Trained:
    """Weights, optimizers, schedule and scaler of a case. slopes: by step the gradients. The other one has other values."""

    def __init__(
        self, case: Case, start: Mapping[str, np.ndarray], slopes: Sequence[Mapping[str, Any]], is_other: bool
    ) -> None:
        self.case, self.slopes = case, slopes
        self.weights = {name: _weight(value + is_other, case.dtype) for name, value in start.items()}
        odd = self.weights["vector"]
        odd.stop_gradient = case.odd == "does not train"
        odd.need_clip = case.odd != "is not clipped"
        if case.odd == "has half the rate":
            odd.optimize_attr["learning_rate"] = 0.5
        if case.odd == "has its own decay":
            odd.regularizer = L1Decay(DECAY / 2)
        self.schedule: Any = paddle.optimizer.lr.LambdaDecay(1.0, case.rate) if case.rate else RATE
        self.parts = [{name: self.weights[name] for name in names} for names in _parts(case)]
        self.optimizers = [self._new(weights) for weights in self.parts]
        with for_float16():
            self.scaler = paddle.amp.GradScaler(case.overflow is not None, **({} if is_other else case.factor))

    def _new(self, weights: Mapping[str, Any]) -> Any:
        """Paddle's optimizer with the options of the case."""
        case = self.case
        options: dict[str, Any] = {**options_of(case), "learning_rate": self.schedule}
        if not isinstance(case.clip, float):
            options["grad_clip"] = case.clip
        if "apply_decay_param_fun" in options:
            options["apply_decay_param_fun"] = lambda name: name == self.weights["matrix"].name
        if case.form is FORMS["tensors"]:
            options |= {name: paddle.to_tensor(options[name], dtype="float32") for name in case.form}
        if case.decay:
            options["weight_decay"] = case.decay(DECAY)
        elif case.optimizer == "AdamW":
            options["weight_decay"] = 0.0
        if case.dtype in ("float16", "bfloat16"):
            options["multi_precision"] = True
        given: list[Any] = list(weights.values())
        if case.groups == "two":
            own = {"weight_decay": case.decay(2 * DECAY)} if case.decay else {}
            given = [{"params": given[1:]}, {"params": given[:1], "learning_rate": 0.1, **own}]
        return getattr(paddle.optimizer, case.optimizer)(parameters=given, **options)

    def step(self, number: int) -> resumed.Read:
        loss = paddle.zeros([])
        for name, weight in self.weights.items():
            if not weight.stop_gradient:
                factor = self.case.overflow(number, name == "matrix") if self.case.overflow else 1.0
                loss = loss + (weight * self.slopes[number][name] * factor).astype("float32").sum()
        with for_float16():
            scaled = self.scaler.scale(loss)
        scaled.backward()
        read: dict[str, Any] = {}
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            if self.case.order == MINIMIZE:
                self.scaler.minimize(self.optimizers[0], scaled)
            for optimizer in self.optimizers if self.case.order == ALL_FIRST else ():
                self.scaler.unscale_(optimizer)
            for place, optimizer in enumerate(self.optimizers if self.case.order != MINIMIZE else ()):
                if self.case.order == ONE_BY_ONE:
                    self.scaler.unscale_(optimizer)
                if isinstance(self.case.clip, float):
                    read[f"norm {place}"] = _clip(self.case.clip, list(self.parts[place].values()))
                self.scaler.step(optimizer)
            if self.case.order != MINIMIZE:
                self.scaler.update()
        for optimizer in self.optimizers:
            optimizer.clear_grad(set_to_zero=False)
        if self.schedule is not RATE:
            self.schedule.step()
        counts = self.scaler.state_dict()
        read |= {name: float(np.ravel(counts[name])[0]) for name in ("scale", "incr_count", "decr_count") if counts}
        return {**read, **self._kept(), "rate": self.optimizers[0].get_lr()}

    def _kept(self) -> dict[str, Any]:
        """Weights, of 16 bits their copies, and what is kept of them, by Paddle's names: "matrix", "matrix.moment1"."""
        tensors, _ = self.state()
        kept = {name: tensors.pop(f"{name}.copy", weight) for name, weight in self.weights.items()}
        kept |= {key.replace("fp32_master_0_", "").removesuffix("_0"): value for key, value in tensors.items() if "." in key}
        return {name: value.astype("float64").numpy() for name, value in kept.items()}

    def state(self) -> resumed.State:
        tensors = dict(self.weights)
        for optimizer, weights in zip(self.optimizers, self.parts, strict=True):
            tensors |= resumed.of_optimizer(optimizer, weights)
        return tensors, (self.optimizers[0].state_dict().get("LR_Scheduler"), self.scaler.state_dict())

    def restore(self, tensors: Mapping[str, Any], others: Any) -> None:
        schedule, scaler = others
        for name, weight in self.weights.items():
            weight.set_value(tensors[name])
        for optimizer, weights in zip(self.optimizers, self.parts, strict=True):
            resumed.set_of_optimizer(optimizer, weights, tensors, schedule)
        if scaler:
            self.scaler.load_state_dict(scaler)


def _parts(case: Case) -> list[list[str]]:
    """The names of the weights of each optimizer."""
    names = list(case.size)
    return [names[:1], names[1:]] if case.groups == "two optimizers" else [names]


def _clip(norm_type: float, weights: Sequence[Any]) -> float:
    """Clip by the function; the norm that it returned, 0 where it returns none, or none that is a number."""
    if not norm_type:
        clip_grad_value_(weights, MOST)
        return 0.0
    norm = float(clip_grad_norm_(weights, MOST, norm_type))
    return norm if np.isfinite(norm) else 0.0


def options_of(case: Case) -> dict[str, Any]:
    """The options of the optimizer of a case; momentum, which two have, is zero by default in one of them."""
    more = {"momentum": 0.7} if case.optimizer == "Momentum" else {}
    return {name: value for name, value in {**DEFAULTS, **more}.items() if _has(case.optimizer, name)} | case.form


def measure(work: Path, case: Case) -> Compared:
    """Take the steps on the device in use. work: a folder. In the control each weight has gone nine tenths of its way.

    Rounding: float32 keeps 24 bits. A step rounds a weight, its gradient and what the optimizer keeps of it, and epsilon keeps
    a small root from making these errors large: 16 of them in each step, of the largest number that the weight or its way has.
    """
    case = replace(case, by_axis={**PLAIN, **case.by_axis})
    rng = case.rng()
    drawn = {name: rng.standard_normal(shape) for name, shape in case.size.items()}
    start = {name: _weight(value, case.dtype).astype("float64").numpy() for name, value in drawn.items()}
    slopes = [
        {name: paddle.to_tensor(rng.standard_normal(shape)).astype(case.dtype) for name, shape in case.size.items()}
        for _ in range(STEPS)
    ]
    right = _reference(
        case, start, [{name: each.astype("float64").numpy() for name, each in slope.items()} for slope in slopes]
    )
    bounds = [
        {name: 16 * (number + 1) * 2.0**-24 * max(1.0, float(np.abs(value).max())) for name, value in read.items()}
        for number, read in enumerate(right)
    ]
    found = resumed.compared(work, case, STEPS, partial(_Trained, case, start, slopes), right, bounds)
    short = {
        f"step {number}, {name}": begun + 0.9 * (read[name] - begun)
        for number, read in enumerate(right)
        for name, begun in start.items()
    }
    return replace(found, wrong={**wrong_values(found.right, found.bound), **short})


def _kernels(case: Case) -> list[tuple[str, str, str]]:
    by_norm = [("clip_by_norm", case.dtype, "")] if isinstance(case.clip, nn.ClipGradByNorm) else []
    return [(case.optimizer.lower(), case.dtype, ""), *by_norm]


add_row = add_row_of(_kernels)


def _weight(drawn: np.ndarray, dtype: Any) -> Any:
    weight: Any = paddle.create_parameter(list(drawn.shape), dtype)
    weight.set_value(paddle.to_tensor(drawn).astype(dtype))
    return weight


def _clipped(clip: Any, gradients: Mapping[str, np.ndarray]) -> tuple[float, dict[str, np.ndarray]]:
    """By one of CLIPS the norm, 0 where there is no single one, and the gradients."""
    if isinstance(clip, nn.ClipGradByValue) or clip == 0:
        least, most = (clip.min, clip.max) if clip else (-MOST, MOST)
        return 0.0, {name: np.clip(gradient, least, most) for name, gradient in gradients.items()}
    if clip is None or not gradients:
        return 0.0, dict(gradients)
    most = clip if isinstance(clip, float) else 2.0
    norms = {name: np.linalg.norm(np.ravel(gradient), most) for name, gradient in gradients.items()}
    if not isinstance(clip, nn.ClipGradByNorm):
        norms = dict.fromkeys(norms, np.linalg.norm([*norms.values()], most))
    limit = MOST if isinstance(clip, float) else clip.clip_norm
    return float(max(norms.values())), {name: min(1.0, limit / norms[name]) * gradient for name, gradient in gradients.items()}


def _reference(case: Case, start: Mapping[str, np.ndarray], slopes: Sequence[Mapping[str, np.ndarray]]) -> list[resumed.Read]:
    """By the formulas what is read after each step. Infinite gradients change nothing of their optimizer."""
    weights, read, scaler = dict(start), list[resumed.Read](), {**SCALER, **case.factor}
    states: dict[str, reference.State] = {name: {} for name in start}
    scale, good, bad = scaler["init_loss_scaling"], 0.0, 0.0
    for step, slope in enumerate(slopes):
        values: dict[str, Any] = {}
        is_good = True
        for place, names in enumerate(_parts(case)):
            gradients = {name: slope[name] for name in names if name != "vector" or case.odd != "does not train"}
            if case.overflow and any(case.overflow(step, name == "matrix") != 1 for name in gradients):
                is_good, gradients = False, {}
            is_function = isinstance(case.clip, float)
            clipped = {name: each for name, each in gradients.items() if is_function or (name, case.odd) != ("vector", ODD[2])}
            norm, clipped = _clipped(case.clip, clipped)
            values |= {f"norm {place}": norm} if is_function else {}
            for name, gradient in (gradients | clipped).items():
                weights[name] = _updated(case, name, states[name], weights[name], gradient, step)
        kept = {f"{name}.{key}": np.array(value) for name, state in states.items() for key, value in state.items()}
        if case.overflow and scaler["use_dynamic_loss_scaling"]:
            good, bad = (good + 1, 0.0) if is_good else (0.0, bad + 1)
            if good == scaler["incr_every_n_steps"]:
                scale, good = scale * scaler["incr_ratio"], 0.0
            if bad == scaler["decr_every_n_nan_or_inf"]:
                scale, bad = scale * scaler["decr_ratio"], 0.0
        values |= {"scale": scale, "incr_count": good, "decr_count": bad} if case.overflow else {}
        read.append({**weights, **kept, **values, "rate": case.rate(step + 1) if case.rate else RATE})
    return read


def _updated(case: Case, name: str, state: reference.State, weight: np.ndarray, gradient: np.ndarray, step: int) -> np.ndarray:
    options, is_own, is_odd = options_of(case), case.groups == "two" and name == "matrix", name == "vector"
    rate = (case.rate(step) if case.rate else RATE) * (0.1 if is_own else 1.0)
    rate *= 0.5 if case.odd == "has half the rate" and is_odd else 1.0
    rate *= options.pop("lr_ratio", lambda weight: 1.0)(weight)
    gradient = gradient * options.pop("rescale_grad", 1.0)
    decay = DECAY * (2 if is_own else 1) if case.decay else 0.0
    if "apply_decay_param_fun" in options and name != "matrix":
        decay = 0.0
    if options.get("exclude_from_weight_decay_fn", lambda weight: False)(weight):
        options["lamb_weight_decay"] = 0.0
    if case.optimizer == "AdamW":
        options["weight_decay"] = decay
    elif case.odd == "has its own decay" and is_odd:
        gradient = gradient + DECAY / 2 * np.sign(weight)
    else:
        gradient = gradient + decay * (np.sign(weight) if case.decay is L1Decay else weight)
    return reference.OPTIMIZERS[case.optimizer](state, weight, gradient, rate, **options)
