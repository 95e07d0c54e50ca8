"""The operator fused_dropout_add in training at every probability: values, gradients, and the share that is kept."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops
from paddle.incubate.nn.functional import fused_dropout_add

from xpulab.chapters.shared.missing_kernels import results_of
from xpulab.chapters.shared.precision import BITS, on_device
from xpulab.checks.table import Table

SHAPE = (64, 96)

PROBABILITIES = (0.0, 0.1, 0.5, 0.9, 1.0)

MODE: Any = "upscale_in_train"
"""Paddle's default: what is kept is multiplied by 1 / (1 - p)."""


def value_rows(rows: Table, operator: str, dtype: str, seed: int) -> None:
    """Rows: x * mask * scale + y for each probability, and the gradients, which use the same mask.

    operator: "function", what Paddle offers; "kernel", the fused kernel behind it, which not every device has.
    """
    rng = np.random.default_rng(seed)
    (x, a), (y, b) = (on_device(rng.uniform(1, 2, SHAPE).astype("float32"), dtype) for _ in range(2))
    x.stop_gradient = y.stop_gradient = False
    for p in PROBABILITIES:
        case, scale = f"{operator}, p = {p:g}, {dtype}", 1 / (1 - p) if p < 1 else 1.0
        found = results_of(rows, case, partial(_computed, x, y, operator, p), "fused_dropout_add", dtype)
        if not found:
            continue
        of_x, of_y = (each.astype("float64").numpy() for each in paddle.grad(found, [x, y], [paddle.ones_like(x)]))
        got = found[0].astype("float64").numpy()
        kept = np.abs(got - b) > 0.25 * scale  # elements of x are between 1 and 2
        expected, slopes = a * kept * scale + b, np.stack([kept * scale, np.ones(SHAPE)])
        unit = (2 * scale + 2) * 4 * 2.0 ** -min(BITS["float32"], BITS[dtype])  # Paddle computes the scale in float32
        rows.close(f"{case}, values", got, expected, atol=unit, control=np.roll(expected, 1))
        rows.close(f"{case}, gradients", np.stack([of_x, of_y]), slopes, atol=unit, control=slopes + 2 * unit)
        deviation = 6 * (p * (1 - p) / kept.size) ** 0.5 + 1e-9
        rows.close(f"{case}, share kept", kept.mean(), 1 - p, atol=deviation, control=abs(0.9 - p))


def _computed(x: Any, y: Any, operator: str, p: float) -> list[paddle.Tensor]:
    if operator == "kernel":
        return [_C_ops.fused_dropout_add(x, y, None, p, False, MODE, 0, False)[0]]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Currently, fused_dropout_add")
        return [fused_dropout_add(x, y, p=p, mode=MODE)]
