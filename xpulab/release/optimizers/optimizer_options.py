"""Options of an optimizer together: Paddle's optimizers on given gradients, beside their formulas in double precision.

    check.grid("sft.optimizer-options", optimizers(types), one_by_one(measure), add_row, level=level, seed=seed, means=...)

A case has three weights, of two axes, one axis and none, takes STEPS steps with random gradients, and compares the weights
at the end: their float32 copies where the optimizer keeps some. The order: gradients are divided by the factor of the scaler,
then clipped, then decay is added, then the update is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import paddle

from xpulab import reference
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid

STEPS, RATE, DECAY, SCALE = 4, 0.05, 0.5, 1024.0
"""Steps, the learning rate, the coefficient of weight decay, the factor of the scaler."""

BETA1, BETA2, MOMENTUM, EPSILON = 0.8, 0.9, 0.7, 1e-2
"""None of them is a default, and epsilon is so large that a gradient of another size makes another step."""

SHAPES = {"matrix": (4, 3), "vector": (5,), "number": ()}
"""By name the shapes of the weights."""

State = dict[str, Any]
Update = Callable[[State, np.ndarray, np.ndarray, float, float], np.ndarray]
"""From what the optimizer keeps of a weight, the weight, its gradient, rate and decoupled decay to the new weight."""


def _momentum(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
    state["velocity"] = MOMENTUM * state.get("velocity", 0.0) + gradient
    return weight - rate * state["velocity"]


def _adam(state: State, weight: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
    """With decay it is AdamW, whose decay is no part of the gradient."""
    one = state.setdefault("adam", reference.AdamW(BETA1, BETA2, EPSILON, decay, np.inf, frozenset({"weight"})))
    new: np.ndarray = one.step({"weight": weight}, {"weight": gradient}, rate)["weight"]
    return new


_MOMENTS = {"beta1": BETA1, "beta2": BETA2, "epsilon": EPSILON}
OPTIMIZERS: dict[str, tuple[Mapping[str, Any], Update]] = {
    "SGD": ({}, lambda state, weight, gradient, rate, decay: weight - rate * gradient),
    "AdamW": (_MOMENTS, _adam),
    "Adam": (_MOMENTS, _adam),
    "Momentum": ({"momentum": MOMENTUM}, _momentum),
}
"""By the name of Paddle's class its options and its formula."""

CLIPS = {"none": None, "global norm": 1.0, "a global norm that is not reached": 1e4}
"""By name the largest norm of all gradients that are clipped."""

DECAYS = {"none": None, "a number": float, "L2Decay": paddle.regularizer.L2Decay}
GROUPS = ("one", "two", "decay by name")
"""All weights together; the matrix in a group of its own, which has a tenth of the rate and twice the decay; or all together,
of which a function says that vector and number have no decay."""

ODD = ("none", "does not train", "is not clipped", "has half the rate")
"""What is special about the vector."""

SCALERS = ("none", "scaled", "scaled, and infinite in the second step")
RATES = {"a number": None, "a schedule": lambda step: RATE * (1 - step / STEPS)}
"""By name the learning rate of a step, counted from 0."""


def optimizers(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types that the device has; weights of 16 bits have copies in float32.

    On a device for which Paddle switches the scaler off, no gradient is infinite.
    """
    scalers = SCALERS if _has_scaler() else SCALERS[:-1]
    return Grid(
        {
            "optimizer": tuple(OPTIMIZERS),
            "dtype": types,
            "clip": CLIPS,
            "decay": DECAYS,
            "groups": GROUPS,
            "odd": ODD,
            "scaler": scalers,
            "rate": RATES,
        },
        {
            "AdamW's decay, which is no part of the gradient, is a number": lambda optimizer, decay: (
                optimizer == "AdamW" and decay not in (None, float)
            ),
            "only AdamW asks for names": lambda optimizer, groups: groups == "decay by name" and optimizer != "AdamW",
        },
        each="optimizer",
    )


def _has_scaler() -> bool:
    """Whether the device in use has a scaler: on the CPU Paddle switches it off, with a warning."""
    return not str(paddle.get_device()).startswith("cpu")


def measure(case: Case) -> Compared:
    """Take the steps on the device in use. In the control each weight has gone nine tenths of its way.

    Rounding: float32 keeps 24 bits. A step rounds a weight, its gradient and what the optimizer keeps of it, and epsilon keeps
    a small root from making these errors large: 16 of them in each step, of the largest number that the weight or its way has.
    """
    rng = case.rng()
    weights = {name: _weight(rng.standard_normal(shape), case.dtype) for name, shape in SHAPES.items()}
    start = {name: weight.astype("float64").numpy() for name, weight in weights.items()}
    slopes = [
        {name: paddle.to_tensor(rng.standard_normal(shape)).astype(case.dtype) for name, shape in SHAPES.items()}
        for _ in range(STEPS)
    ]
    odd = weights["vector"]
    odd.stop_gradient = case.odd == "does not train"
    odd.need_clip = case.odd != "is not clipped"
    if case.odd == "has half the rate":
        odd.optimize_attr["learning_rate"] = 0.5
    schedule: Any = RATE
    if case.rate:
        schedule = paddle.optimizer.lr.LambdaDecay(1.0, case.rate)
    stepper = _new(case, weights, schedule)
    scaler = paddle.amp.GradScaler(enable=case.scaler != "none" and _has_scaler(), init_loss_scaling=SCALE)
    for step, slope in enumerate(slopes):
        loss = paddle.zeros([])
        for name, weight in weights.items():
            if weight.stop_gradient:
                continue
            factor = float("inf") if "infinite" in case.scaler and step == 1 and name == "matrix" else 1.0
            loss = loss + (weight * slope[name] * factor).astype("float32").sum()
        with paddle.amp.auto_cast(enable=scaler.is_enable(), dtype="float16"):  # without it the scaler switches itself off
            scaled = scaler.scale(loss)
        scaled.backward()
        with redirect_stdout(StringIO()):  # it prints each infinite gradient
            scaler.step(stepper)
            scaler.update()
        stepper.clear_grad(set_to_zero=False)
        if schedule is not RATE:
            schedule.step()
    copies = getattr(stepper, "_master_weights", {})
    found = {name: copies.get(weight.name, weight).astype("float64").numpy() for name, weight in weights.items()}
    exact = [{name: value.astype("float64").numpy() for name, value in slope.items()} for slope in slopes]
    right = _reference(case, start, exact)
    ways = {name: right[name] - begun for name, begun in start.items()}
    sizes = {name: max(1.0, float(np.abs(begun).max()), float(np.abs(ways[name]).max())) for name, begun in start.items()}
    bound = {name: 16 * STEPS * 2.0**-24 * size for name, size in sizes.items()}
    return Compared(found, right, bound, {name: begun + 0.9 * ways[name] for name, begun in start.items()})


add_row = add_row_of(lambda case: [(case.optimizer.lower(), case.dtype, "")])


def _weight(drawn: np.ndarray, dtype: Any) -> Any:
    weight: Any = paddle.create_parameter(list(drawn.shape), dtype)
    weight.set_value(paddle.to_tensor(drawn).astype(dtype))
    return weight


def _new(case: Case, weights: Mapping[str, Any], schedule: Any) -> Any:
    """Paddle's optimizer with the options of the case."""
    options: dict[str, Any] = {**OPTIMIZERS[case.optimizer][0], "learning_rate": schedule}
    if case.clip:
        options["grad_clip"] = paddle.nn.ClipGradByGlobalNorm(case.clip)
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
    if case.groups == "decay by name":
        options["apply_decay_param_fun"] = lambda name: name == weights["matrix"].name
    return getattr(paddle.optimizer, case.optimizer)(parameters=given, **options)


def _reference(
    case: Case, start: Mapping[str, np.ndarray], slopes: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The weights at the end by the formulas. A step with an infinite gradient changes nothing."""
    weights = dict(start)
    states: dict[str, State] = {name: {} for name in start}
    for step, slope in enumerate(slopes):
        if "infinite" in case.scaler and step == 1:
            continue
        gradients = {name: slope[name] for name in weights if name != "vector" or case.odd != "does not train"}
        clipped = [name for name in gradients if name != "vector" or case.odd != "is not clipped"]
        norm = np.sqrt(sum(float((gradients[name] ** 2).sum()) for name in clipped))
        scale = min(1.0, (case.clip or np.inf) / norm)
        gradients |= {name: scale * gradients[name] for name in clipped}
        for name, gradient in gradients.items():
            is_own = case.groups == "two" and name == "matrix"
            rate = (case.rate(step) if case.rate else RATE) * (0.1 if is_own else 1.0)
            rate *= 0.5 if case.odd == "has half the rate" and name == "vector" else 1.0
            decay = DECAY * (2 if is_own else 1) if case.decay else 0.0
            if case.groups == "decay by name" and name != "matrix":
                decay = 0.0
            is_decoupled = case.optimizer == "AdamW"
            if not is_decoupled:
                gradient = gradient + decay * weights[name]
            weights[name] = OPTIMIZERS[case.optimizer][1](
                states[name], weights[name], gradient, rate, decay if is_decoupled else 0.0
            )
    return weights
