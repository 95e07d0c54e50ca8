"""How large a difference noise explains: rounding in another order, which grows while a training goes on.

Measured, from a third log of the same training whose numbers differ by noise only; or, where there is none, a stated model.
Never more than half of what the loss falls by: noise does not undo a training.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
MOST_OF_FALL, MOST_OF_NORM = 0.5, 0.5
"""No noise is wider: of the loss's fall, and of the largest norm of the gradients so far."""
FALLS = 0.1
"""A loss that falls by less than so much of its largest value says nothing about how large noise can be."""

ROUNDING = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "16 bits": 2.0**-8, "bfloat16": 2.0**-8}
"""Half a unit in the last place, relative to 1, by type; "16 bits" is either of two."""


def dtype_of(log: TrainingLog) -> str:
    """The type in which a training multiplies, as the log says it; else "", or float32 for xpulab.align.Log."""
    stated = str(log.environment.get("settings.dtype", ""))
    if stated in ROUNDING:
        return stated
    for setting, name in (("settings.bf16", "bfloat16"), ("settings.fp16", "float16")):
        if log.environment.get(setting) is True:
            return name
    types = str(log.environment.get("weights.dtype", "")).split()
    default = "float32" if log.format.startswith("xpulab.align") else ""
    return max((name for name in types if name in ROUNDING), key=ROUNDING.__getitem__, default=default)


def fall(*losses: np.ndarray) -> float:
    """By how much a loss falls, of several the least: from the mean of a tenth of the steps to that of later ones."""
    least = np.inf
    for values in losses:
        values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
        few = max(1, len(values) // 10)
        sums = np.append(0.0, np.cumsum(values))
        means = (sums[few:] - sums[:-few]) / few
        drop = float((np.maximum.accumulate(means) - means).max())
        least = min(least, drop if drop > 1e-12 * np.abs(values).max() else 0.0)  # less is the rounding of the sums
    return least


def widths(
    name: str, numbers: np.ndarray, a: np.ndarray, b: np.ndarray, noise: Sequence[tuple[np.ndarray, np.ndarray]], dtype: str
) -> np.ndarray:
    """How far values b of a quantity may be from a, step by step, without what a file has rounded.

    noise: by log steps and how far their values are from a, for a measured band. dtype: of the products, for the model.
    """
    if name == "learning_rate":
        return RATE_TOLERANCE * np.abs(a)
    size = np.where(np.isfinite(a), np.abs(a), 0.0)
    largest = np.maximum.accumulate(size)
    least = LAST_PLACES * min(ROUNDING[dtype], ROUNDING["float32"]) * size  # a loss and norms are summed in float32
    measured = np.zeros_like(a)
    for steps, apart in noise:
        so_far = np.append(0.0, np.maximum.accumulate(np.where(np.isfinite(apart), apart, 0.0)))
        measured = np.maximum(measured, so_far[np.searchsorted(steps, numbers, "right")])
    growths = HALF_GROWTH if dtype in ("float16", "bfloat16", "16 bits") else GROWTH
    count = numbers - numbers[0] + (numbers[1] - numbers[0] if len(numbers) > 1 else 1)
    wide = FACTOR * measured if noise else growths[name] * ROUNDING[dtype] * count * largest
    falls_by = max(fall(a), fall(b))
    most = MOST_OF_NORM * largest if name == "grad_norm" else np.full_like(a, MOST_OF_FALL * falls_by)
    if name == "grad_norm" or falls_by >= FALLS * largest[-1]:
        wide = np.minimum(wide, np.maximum(most, 2 * measured))
    return np.maximum(least, wide)


def origin(a: TrainingLog, noise: Sequence[TrainingLog], dtype: str) -> str:
    """Where the widths come from, in words."""
    if noise:
        names = ", ".join(log.path.name for log in noise)
        return f"measured: {FACTOR} times the largest difference so far between {a.path.name} and {names}"
    growths = HALF_GROWTH if dtype in ("float16", "bfloat16", "16 bits") else GROWTH
    each = ", ".join(f"{growth:g} ({name})" for name, growth in growths.items())
    return f"a model, not measured: {each} x {ROUNDING[dtype]:.1e} of the largest value, a step ({dtype}); --noise measures it"
