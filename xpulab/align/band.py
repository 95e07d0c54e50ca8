"""How large a difference noise explains: rounding in another order, which grows while a training goes on.

Measured, from a third log of the same training whose numbers differ by noise only; or, where there is none, a stated model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def measured(
    a: TrainingLog, noise: Sequence[TrainingLog], numbers: Sequence[int], quantities: Sequence[str], dtype: str
) -> Band:
    """FACTOR times the largest difference between a and a log of noise up to each step.

    Of the weights at least the model: Adam makes a whole update out of a gradient near zero, whatever its sign, so that the few
    elements that noise turns around decide, and they are others in each training.
    """
    widths: dict[str, list[float]] = {}
    modelled = model(a, numbers, quantities, dtype).widths
    for name in quantities:
        largest, widths[name] = 0.0, []
        for number in numbers:
            value = a.steps[number].values[name]
            for log in noise:
                other = log.steps[number].values.get(name)
                if other is not None and other == other and value == value:
                    largest = max(largest, abs(value - other))
            least = _least(name, value, dtype)
            widths[name].append(least if name == "learning_rate" else max(FACTOR * largest, least))
        if name == "weights":
            widths[name] = [max(pair) for pair in zip(widths[name], modelled[name], strict=True)]
    names = ", ".join(log.path.name for log in noise)
    text = f"{FACTOR} times the largest difference so far between {a.path.name} and {names}; of the weights at least the model"
    return Band("measured", text, widths)


def model(a: TrainingLog, numbers: Sequence[int], quantities: Sequence[str], dtype: str) -> Band:
    """A stated growth: in proportion to the largest value so far and to the number of steps since the first one compared."""
    unit, growths = ROUNDING[dtype], HALF_GROWTH if dtype in ("float16", "bfloat16") else GROWTH
    widths: dict[str, list[float]] = {}
    for name in quantities:
        largest, widths[name] = 0.0, []
        growth = growths.get(name, 0.0)
        for count, value in enumerate((a.steps[number].values[name] for number in numbers), start=1):
            largest = max(largest, abs(value)) if math.isfinite(value) else largest
            widths[name].append(max(_least(name, value, dtype), growth * unit * count * largest))
    each = ", ".join(f"{growth:g} ({name})" for name, growth in growths.items())
    text = f"a model, not measured: {each} x {unit:.1e} of the largest value, a step ({dtype}); --noise FILE measures it"
    return Band("model", text, widths)


def resolution(log: TrainingLog, name: str) -> float:
    """Half a unit of the last decimal, where all values of a log are rounded to at most 8 decimals; else 0.

    Trainers print rounded losses: two of those cannot agree more closely.
    """
    values = [step.values[name] for step in log.steps.values()]
    for decimals in range(9):
        if all(value == round(value, decimals) for value in values if value == value):
            return 0.5 * 10.0**-decimals
    return 0.0


def widened(band: Band, rounded: dict[str, float]) -> Band:
    """The band with what the rounding of the logs adds. rounded: by quantity, the sum of the resolutions of both logs."""
    widths = {name: [width + rounded.get(name, 0.0) for width in values] for name, values in band.widths.items()}
    return Band(band.kind, band.text, widths)


def _least(name: str, value: float, dtype: str) -> float:
    if name == "learning_rate":
        return RATE_TOLERANCE * abs(value)
    unit = min(ROUNDING[dtype], ROUNDING["float32"])  # a loss and norms are summed in float32
    return LAST_PLACES * unit * abs(value) if value == value else 0.0


def finer(a: TrainingLog, b: TrainingLog) -> str:
    """Of the types of two trainings the one that rounds less: what the other one loses is a difference, not noise."""
    return min((dtype_of(log) for log in (a, b)), key=ROUNDING.__getitem__)


def as_json(band: Band) -> dict[str, Any]:
    """Kind and text."""
    return {"kind": band.kind, "text": band.text}
