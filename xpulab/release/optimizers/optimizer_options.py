"""Options of an optimizer together: Paddle's optimizers on given gradients, beside their formulas in double precision.

    check.grid("sft.optimizer-options", optimizers(types), one_by_one(partial(measure, work)), add_row, level=level, ...)

A case has three weights, of two axes, one axis and none, takes STEPS steps with random gradients, and compares after each the
weights, their float32 copies where the optimizer keeps some, and all that it keeps of them; and it goes on from a file, as
`resumed` says. The order: gradients are divided by the factor of the scaler, then clipped, then decay is added, then the
update is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import nn
from paddle.regularizer import L1Decay, L2Decay

from xpulab import reference
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.release.optimizers import resumed, scalers

STEPS, RATE, DECAY, SCALE = 7, 0.05, 0.5, 1024.0
"""Steps, RAdam needs as many, the learning rate, the coefficient of weight decay, the factor of the scaler."""

OVERFLOW = 1
"""The step whose gradient is infinite, where one is."""

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "small": {"matrix": (4, 3), "vector": (5,), "number": ()},
    "a block": {"matrix": (128, 8), "vector": (512,), "number": (1,)},
    "past a block": {"matrix": (43, 3, 5), "vector": (513,), "number": (1, 1)},
}
"""By name the shapes of the weights; the CPU's Adam takes 512 elements at once."""

DEFAULTS: dict[str, Any] = {"beta1": 0.8, "beta2": 0.9, "epsilon": 1e-2, "rho": 0.8, "momentum_decay": 0.1, "batch_num": 1}
DEFAULTS |= {"etas": (0.6, 1.3), "learning_rate_range": (0.02, 0.08), "lamb_weight_decay": 0.2}
"""Where an optimizer has the option. None is Paddle's default but one: a batch_num of 1. Epsilon is so large that a gradient of
another size makes another step, and that a small root makes no error large."""

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
    "value": nn.ClipGradByValue(0.5),
    "value from a least one": nn.ClipGradByValue(0.5, -0.1),
}
DECAYS = {"none": None, "a number": float, "L2Decay": L2Decay, "L1Decay": L1Decay}
GROUPS = ("one", "two")
"""All weights together; or the matrix in a group of its own, which has a tenth of the rate and twice the decay."""

ODD = ("none", "does not train", "is not clipped", "has half the rate", "has its own decay")
"""What is special about the vector; its own decay is L1Decay with half of the coefficient."""

SCALERS = ("none", "scaled", "scaled, and infinite in the second step")
RATES = {"a number": None, "a schedule": lambda step: RATE * (1 - step / 2 / STEPS)}
"""By name the learning rate of a step, counted from 0."""


@cache
def _has(optimizer: str, *options: str) -> bool:
    return set(options) <= inspect.signature(getattr(paddle.optimizer, optimizer)).parameters.keys()


def optimizers(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types that the device has; weights of 16 bits have copies in float32."""
    return Grid(
        {
            "optimizer": tuple(reference.OPTIMIZERS),
            "form": FORMS,
            "dtype": types,
            "size": SIZES,
            "clip": CLIPS,
            "decay": DECAYS,
            "groups": GROUPS,
            "odd": ODD,
            "scaler": SCALERS,
            "rate": RATES,
            "saved": {"before the first step": 0, "after a step": 1, "before the last step": STEPS - 1},
        },
        {
            "not every optimizer has each option": lambda optimizer, form: not _has(optimizer, *form),
            "the scaler and float64 are an issue of sft.scalers": lambda scaler, dtype: dtype == "float64" and scaler != "none",
            "several at once are not of float64": lambda form, dtype: "use_multi_tensor" in form and dtype == "float64",
            "the CPU has no lr_ratio": lambda form: "lr_ratio" in form and str(paddle.get_device()).startswith("cpu"),
            "AdamW's decay, which is no part of the gradient, is a number": lambda optimizer, decay: (
                optimizer == "AdamW" and decay not in (None, float)
            ),
            "Lamb and Rprop have no such decay": lambda optimizer, decay: decay and not _has(optimizer, "weight_decay"),
            "AdamW has one decay": lambda optimizer, odd: optimizer == "AdamW" and odd == "has its own decay",
            "NAdam's decay is a number": lambda optimizer, decay: optimizer == "NAdam" and decay not in (None, float),
            "Rprop keeps its own rates": lambda optimizer, groups, odd, rate: (
                optimizer == "Rprop" and (groups == "two" or odd == "has half the rate" or rate is not None)
            ),
            "only weights of 16 bits have copies, which not every optimizer makes": lambda optimizer, dtype: (
                dtype in ("float16", "bfloat16") and not _has(optimizer, "multi_precision")
            ),
        },
        each="optimizer",
    )


class _Trained:
    """Weights, optimizer, schedule and scaler of a case."""

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
        self.optimizer = self._new()
        with scalers.for_float16():
            self.scaler = paddle.amp.GradScaler(enable=case.scaler != "none", init_loss_scaling=SCALE)

    def _new(self) -> Any:
        """Paddle's optimizer with the options of the case."""
        case, weights = self.case, self.weights
        options: dict[str, Any] = {**options_of(case), "learning_rate": self.schedule, "grad_clip": case.clip}
        if "apply_decay_param_fun" in options:
            options["apply_decay_param_fun"] = lambda name: name == weights["matrix"].name
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
            if weight.stop_gradient:
                continue
            is_infinite = "infinite" in self.case.scaler and number == OVERFLOW and name == "matrix"
            slope = self.slopes[number][name] * (float("inf") if is_infinite else 1.0)
            loss = loss + (weight * slope).astype("float32").sum()
        with scalers.for_float16():
            scaled = self.scaler.scale(loss)
        scaled.backward()
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.clear_grad(set_to_zero=False)
        if self.schedule is not RATE:
            self.schedule.step()
        return self._read()

    def _read(self) -> resumed.Read:
        """What is known by Paddle's names: "matrix", "matrix.moment1"; of weights of 16 bits the copies."""
        held = resumed.of_optimizer(self.optimizer, self.weights)
        read = {name: held.pop(f"{name}.copy", weight) for name, weight in self.weights.items()}
        read |= {
            key.replace("fp32_master_0_", "").removesuffix("_0"): value for key, value in held.items() if key != "LR_Scheduler"
        }
        return {name: value.astype("float64").numpy() for name, value in read.items()} | {"rate": self.optimizer.get_lr()}

    def state(self) -> Any:
        held = resumed.of_optimizer(self.optimizer, self.weights)
        return {"weights": self.weights, "optimizer": held, "scaler": self.scaler.state_dict()}

    def restore(self, state: Any) -> None:
        for name, weight in self.weights.items():
            weight.set_value(state["weights"][name])
        resumed.set_of_optimizer(self.optimizer, self.weights, state["optimizer"])
        if self.scaler.is_enable():
            self.scaler.load_state_dict(state["scaler"])


def options_of(case: Case) -> dict[str, Any]:
    """The options of the optimizer of a case; momentum, which two have, is zero by default in one of them."""
    more = {"momentum": 0.7} if case.optimizer == "Momentum" else {}
    return {name: value for name, value in {**DEFAULTS, **more}.items() if _has(case.optimizer, name)} | case.form


def measure(work: Path, case: Case) -> Compared:
    """Take the steps on the device in use. work: a folder. In the control each weight has gone nine tenths of its way.

    Rounding: float32 keeps 24 bits. A step rounds a weight, its gradient and what the optimizer keeps of it, and epsilon keeps
    a small root from making these errors large: 16 of them in each step, of the largest number that the weight or its way has.
    """
    rng = case.rng()
    drawn = {name: rng.standard_normal(shape) for name, shape in case.size.items()}
    start = {name: _weight(value, case.dtype).astype("float64").numpy() for name, value in drawn.items()}
    slopes = [
        {name: paddle.to_tensor(rng.standard_normal(shape)).astype(case.dtype) for name, shape in case.size.items()}
        for _ in range(STEPS)
    ]
    exact = [{name: value.astype("float64").numpy() for name, value in slope.items()} for slope in slopes]
    right = _reference(case, start, exact)
    bounds = [
        {name: 16 * (number + 1) * 2.0**-24 * max(1.0, float(np.abs(value).max())) for name, value in read.items()}
        for number, read in enumerate(right)
    ]
    wrong = [{**read, **{name: begun + 0.9 * (read[name] - begun) for name, begun in start.items()}} for read in right]
    return resumed.compared(work, STEPS, case.saved, partial(_Trained, case, start, slopes), right, bounds, wrong)


def _kernels(case: Case) -> list[tuple[str, str, str]]:
    by_norm = [("clip_by_norm", case.dtype, "")] if isinstance(case.clip, nn.ClipGradByNorm) else []
    return [(case.optimizer.lower(), case.dtype, ""), *by_norm]


add_row = add_row_of(_kernels)


def _weight(drawn: np.ndarray, dtype: Any) -> Any:
    weight: Any = paddle.create_parameter(list(drawn.shape), dtype)
    weight.set_value(paddle.to_tensor(drawn).astype(dtype))
    return weight


def _clipped(clip: Any, gradients: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By one of CLIPS."""
    if isinstance(clip, nn.ClipGradByValue):
        return {name: np.clip(gradient, clip.min, clip.max) for name, gradient in gradients.items()}
    norms = {name: np.linalg.norm(np.ravel(gradient)) for name, gradient in gradients.items()}
    if isinstance(clip, nn.ClipGradByGlobalNorm):
        norms = dict.fromkeys(norms, np.linalg.norm([*norms.values()]))
    most = clip.clip_norm if clip else np.inf
    return {name: min(1.0, most / norms[name]) * gradient for name, gradient in gradients.items()}


def _reference(case: Case, start: Mapping[str, np.ndarray], slopes: Sequence[Mapping[str, np.ndarray]]) -> list[resumed.Read]:
    """By the formulas what is read after each step. A step with an infinite gradient changes nothing."""
    weights, update, read = dict(start), reference.OPTIMIZERS[case.optimizer], list[resumed.Read]()
    states: dict[str, reference.State] = {name: {} for name in start}
    is_decoupled = case.optimizer == "AdamW"
    for step, slope in enumerate(slopes):
        gradients = {name: slope[name] for name in weights if name != "vector" or case.odd != "does not train"}
        if "infinite" in case.scaler and step == OVERFLOW:
            gradients = {}
        clipped = {name: each for name, each in gradients.items() if name != "vector" or case.odd != "is not clipped"}
        for name, gradient in (gradients | _clipped(case.clip, clipped)).items():
            weight, is_own, is_odd = weights[name], case.groups == "two" and name == "matrix", name == "vector"
            options = options_of(case)
            rate = (case.rate(step) if case.rate else RATE) * (0.1 if is_own else 1.0)
            rate *= 0.5 if case.odd == "has half the rate" and is_odd else 1.0
            rate *= 0.5 if "lr_ratio" in options and weight.ndim == 1 else 1.0
            gradient = gradient * options.pop("rescale_grad", 1.0)
            decay = DECAY * (2 if is_own else 1) if case.decay else 0.0
            if "apply_decay_param_fun" in options and name != "matrix":
                decay = 0.0
            if "exclude_from_weight_decay_fn" in options and weight.ndim == 1:
                options["lamb_weight_decay"] = 0.0
            if is_decoupled:
                options["weight_decay"] = decay
            elif case.odd == "has its own decay" and is_odd:
                gradient = gradient + DECAY / 2 * np.sign(weight)
            else:
                gradient = gradient + decay * (np.sign(weight) if case.decay is L1Decay else weight)
            weights[name] = update(states[name], weight, gradient, rate, **options)
        kept = {f"{name}.{key}": np.array(value) for name, state in states.items() for key, value in state.items()}
        read.append({**weights, **kept, "rate": case.rate(step + 1) if case.rate else RATE})
    return read
