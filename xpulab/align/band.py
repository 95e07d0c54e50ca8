"""How large a difference noise explains: rounding in another order, which grows while a training goes on.

Measured, from a third log of the same training whose numbers differ by noise only; or, where there is none, a stated model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from xpulab.align.read import TrainingLog

FACTOR = 16
"""A measured band is so many times the largest difference up to that step.

Of 240 triples of trainings whose weights began one unit in the last place apart, at a rate at which differences grow a
hundredfold within 200 steps, 0 left the band with 16, 2 with 10 and 16 with 5 (tests/align/train.py, float32, an AMD EPYC)."""
LAST_PLACES = 8
"""The least band: so many units of rounding of the value itself."""
GROWTH = {"loss": 128.0, "grad_norm": 256.0}
"""The model: units of rounding for each step, relative to the largest value so far, three times what was measured between
transformers and PaddleNLP on SmolLM2-135M, 20 steps of LoRA on a CPU: 42 and 83 (data/alignment). Of the tiny trainings above
no difference was larger than 18 and 28."""
HALF_GROWTH = {"loss": 8.0, "grad_norm": 8.0}
"""The same for products of half types, from how far bfloat16 and float32 were apart on SmolLM2-135M: 4.4 and 4.7 units of
bfloat16 a step, and 1.4 times that for two trainings that both round. Between tiny trainings it was 0.09 and 0.16."""
RATE_TOLERANCE = 1e-6
"""Of a learning rate, relative: schedules are computed in other orders, and one is not a result of the training."""

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Half a unit in the last place, relative to 1, by type."""


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
) -> tuple[dict[str, list[float]], str]:
    """By quantity how far from a values may be, one width a step; and where that comes from, in words.

    It is measured from logs of noise when there are any, else the model.
    What a trainer has rounded cannot agree more closely: that is added. Of two types the one that rounds less counts: what the
    other one loses is a difference, not noise.
    """
    dtype = min((dtype_of(log) for log in (a, b)), key=ROUNDING.__getitem__)
    growths = HALF_GROWTH if dtype in ("float16", "bfloat16") else GROWTH
    widths: dict[str, list[float]] = {}
    for name in quantities:
        values = a.values(name, numbers)
        if name == "learning_rate":
            widths[name] = [RATE_TOLERANCE * abs(value) for value in values]
            continue
        last_place = min(ROUNDING[dtype], ROUNDING["float32"])  # a loss and norms are summed in float32
        least = [LAST_PLACES * last_place * abs(value) if math.isfinite(value) else 0.0 for value in values]
        wide = _measured(name, values, noise, numbers) if noise else _model(values, growths[name] * ROUNDING[dtype])
        rounded = sum(resolution(log, name) for log in (a, b))
        widths[name] = [max(pair) + rounded for pair in zip(least, wide, strict=True)]
    if noise:
        names = ", ".join(log.path.name for log in noise)
        return widths, f"measured: {FACTOR} times the largest difference so far between {a.path.name} and {names}"
    each = ", ".join(f"{growth:g} ({name})" for name, growth in growths.items())
    unit = f"{ROUNDING[dtype]:.1e} of the largest value, a step ({dtype})"
    return widths, f"a model, not measured: {each} x {unit}; --noise measures it"


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
