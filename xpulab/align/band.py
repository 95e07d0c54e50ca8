"""How large a difference noise explains: rounding in another order, which grows while a training goes on.

Measured, from a third log of the same training whose numbers differ by noise only; or, where there is none, a stated model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from xpulab.align.read import TrainingLog

FACTOR = 16
"""A measured band is so many times the largest difference up to that step.

Of 240 triples of trainings whose weights began one unit in the last place apart, at a rate at which differences grow a
hundredfold within 200 steps, 0 left the band with 16, 2 with 10 and 16 with 5 (tests/align/train.py, float32, an AMD EPYC)."""
LAST_PLACES = 8
"""The least band: so many units of rounding of the value itself."""
GROWTH = {"loss": 128.0, "grad_norm": 256.0, "weights": 64.0}
"""The model: units of rounding for each step, relative to the largest value so far, three times what was measured between
transformers and PaddleNLP on SmolLM2-135M, 20 steps of LoRA on a CPU: 42, 83 and 20 (data/alignment). Of the tiny trainings
above no difference was larger than 18, 28 and 0.5."""
HALF_GROWTH = {"loss": 8.0, "grad_norm": 8.0, "weights": 0.25}
"""The same for products of half types, from how far bfloat16 and float32 were apart on SmolLM2-135M: 4.4, 4.7 and 0.05 units of
bfloat16 a step, and 1.4 times that for two trainings that both round. Between tiny trainings it was 0.09, 0.16 and 0.0002."""
RATE_TOLERANCE = 1e-6
"""Of a learning rate, relative: schedules are computed in other orders, and one is not a result of the training."""

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half a unit in the last place, relative to 1, by type."""


@dataclass(frozen=True)
class Band:
    """How far apart values may be. kind: "measured" or "model". text: where it comes from. widths: by quantity, one a step."""

    kind: str
    text: str
    widths: dict[str, list[float]]


def dtype_of(log: TrainingLog) -> str:
    """The type in which a training multiplies, as far as its first line says: float32 otherwise."""
    stated = str(log.environment.get("settings.dtype", ""))
    if stated in ROUNDING:
        return stated
    for setting, name in (("settings.bf16", "bfloat16"), ("settings.fp16", "float16")):
        if log.environment.get(setting) is True:
            return name
    types = str(log.environment.get("weights.dtype", "")).split()
    return max((name for name in types if name in ROUNDING), key=ROUNDING.__getitem__, default="float32")


def band_of(
    a: TrainingLog, b: TrainingLog, noise: Sequence[TrainingLog], numbers: Sequence[int], quantities: Sequence[str]
) -> Band:
    """The band around a at these steps: measured from logs of noise when there are any, else the model.

    What a trainer has rounded cannot agree more closely: that is added. Of two types the one that rounds less counts: what the
    other one loses is a difference, not noise. Of the weights a measured band is at least the model: Adam makes a whole update
    out of a gradient near zero, whatever its sign, so that the few elements that noise turns around decide, and they are others
    in each training.
    """
    dtype = min((dtype_of(log) for log in (a, b)), key=ROUNDING.__getitem__)
    growths = HALF_GROWTH if dtype in ("float16", "bfloat16") else GROWTH
    widths: dict[str, list[float]] = {}
    for name in quantities:
        values = a.values(name, numbers)
        if name == "learning_rate":
            widths[name] = [RATE_TOLERANCE * abs(value) for value in values]
            continue
        unit = min(ROUNDING[dtype], ROUNDING["float32"])  # a loss and norms are summed in float32
        least = [LAST_PLACES * unit * abs(value) if math.isfinite(value) else 0.0 for value in values]
        rounded = sum(resolution(log, name) for log in (a, b)) if name != "weights" else 0.0
        wide = _measured(name, values, noise, numbers) if noise else [0.0 for _ in values]
        if not noise or name == "weights":
            wide = list(map(max, wide, _model(values, growths[name] * ROUNDING[dtype])))
        widths[name] = [max(pair) + rounded for pair in zip(least, wide, strict=True)]
    if noise:
        names = ", ".join(log.path.name for log in noise)
        text = (
            f"{FACTOR} times the largest difference so far between {a.path.name} and {names}; of the weights at least the model"
        )
        return Band("measured", text, widths)
    each = ", ".join(f"{growth:g} ({name})" for name, growth in growths.items())
    text = f"a model, not measured: {each} x {ROUNDING[dtype]:.1e} of the largest value, a step ({dtype}); --noise measures it"
    return Band("model", text, widths)


def resolution(log: TrainingLog, name: str) -> float:
    """Half a unit of the last decimal, where all values of a log are rounded to at most 8 decimals; else 0."""
    values = [value for value in log.values(name, list(log.steps)) if math.isfinite(value)]
    exact = (decimals for decimals in range(9) if all(value == round(value, decimals) for value in values))
    return next((0.5 * 10.0**-decimals for decimals in exact), 0.0)


def _measured(name: str, values: Sequence[float], noise: Sequence[TrainingLog], numbers: Sequence[int]) -> list[float]:
    """FACTOR times the largest difference between the values and a log of noise up to each step."""
    apart = [
        [abs(value - log.steps[number].values.get(name, math.nan)) for log in noise]
        for value, number in zip(values, numbers, strict=True)
    ]
    largest = (max([0.0, *filter(math.isfinite, differences)]) for differences in apart)
    return [FACTOR * width for width in accumulate(largest, max)]


def _model(values: Sequence[float], growth: float) -> list[float]:
    """A stated growth: in proportion to the largest value so far and to the number of steps since the first one compared."""
    largest = accumulate((abs(value) if math.isfinite(value) else 0.0 for value in values), max)
    return [growth * count * width for count, width in enumerate(largest, start=1)]
