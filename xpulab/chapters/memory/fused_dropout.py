"""The operator fused_dropout_add at every probability: values, scale, gradient, and how it falls back to its parts."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import _C_ops
from paddle.incubate.nn.functional import fused_dropout_add

from xpulab.chapters.shared.missing_kernels import results_of
from xpulab.chapters.shared.precision import BITS, on_device
from xpulab.checks.table import Table

SHAPE = (64, 96)

PROBABILITIES = (0.0, 0.1, 0.5, 0.9, 1.0)

MODES = ("upscale_in_train", "downscale_in_infer")


def scale_of(p: float, mode: str, training: bool) -> float:
    """By how much an element of x that is kept is multiplied."""
    if training:
        return 1 / (1 - p) if mode == "upscale_in_train" and p < 1 else 1.0
    return 1 - p if mode == "downscale_in_infer" else 1.0


def value_rows(rows: Table, operator: str, dtype: str, seed: int) -> None:
    """Rows: x * mask * scale + y, for each probability, mode and phase, and the gradients, which use the same mask.

    operator: "function", what Paddle offers; "kernel", the fused kernel behind it, which not every device has.
    """
    rng = np.random.default_rng(seed)
    (x, a), (y, b) = (on_device(rng.uniform(1, 2, SHAPE).astype("float32"), dtype) for _ in range(2))
    for mode in MODES:
        for training in (True, False):
            for p in PROBABILITIES:
                case = f"{operator}, p = {p:g}, {mode}, {'training' if training else 'inference'}, {dtype}"
                _value_row(rows, case, (x, a), (y, b), (operator, p, mode, training))


def _value_row(rows: Table, case: str, first: Any, second: Any, how: tuple[str, float, str, bool]) -> None:
    """Rows of one case; first, second: the inputs as a tensor and as the exact array."""
    (x, a), (y, b), (_, p, mode, training) = first, second, how
    x, y = x.detach(), y.detach()
    x.stop_gradient = y.stop_gradient = False
    dtype = str(x.dtype).removeprefix("paddle.")
    found = results_of(rows, case, lambda: [_computed(x, y, *how)], "fused_dropout_add", dtype)
    if not found:
        return
    of_x, of_y = paddle.grad(found, [x, y], grad_outputs=[paddle.ones_like(x)])
    scale = scale_of(p, mode, training)
    got, gradient = (each.astype("float64").numpy() for each in (found[0], of_x))
    kept = (np.abs(got - b) > 0.25 * scale) if training else np.ones(SHAPE, bool)  # elements of x are between 1 and 2
    size, expected = 2 * scale + 2, a * kept * scale + b
    bits = min(BITS["float32"], BITS[dtype])  # Paddle computes the scale in float32
    unit = size * 4 * 2.0**-bits
    rows.close(f"{case}, values", got, expected, atol=unit, control=np.roll(expected, 1))
    both, slopes = np.stack([gradient, of_y.astype("float64").numpy()]), np.stack([kept * scale, np.ones(SHAPE)])
    rows.close(f"{case}, gradients", both, slopes, atol=unit, control=slopes + 2 * unit)
    if training:
        deviation = 6 * (p * (1 - p) / kept.size) ** 0.5 + 1e-9
        rows.close(f"{case}, share kept", kept.mean(), 1 - p, atol=deviation, control=abs(0.9 - p))


def _computed(x: Any, y: Any, operator: str, p: float, mode: Any, training: bool) -> paddle.Tensor:
    if operator == "kernel":
        return _C_ops.fused_dropout_add(x, y, None, p, not training, mode, 0, False)[0]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Currently, fused_dropout_add")
        return fused_dropout_add(x, y, p=p, training=training, mode=mode)


def warnings_of_the_fallback() -> list[str]:
    """What fused_dropout_add warns about at its first call: that it falls back, or nothing where it does not."""
    module = importlib.import_module("paddle.incubate.nn.functional.fused_dropout_add")
    said = getattr(module, "flag", [False])
    before, said[0] = said[0], False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fused_dropout_add(paddle.ones([2]), paddle.ones([2]), p=0.5)
    finally:
        said[0] = before
    return [str(each.message) for each in caught if "fused_dropout_add" in str(each.message)]


def fused_and_parts(p: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The fused result, dropout and then an addition with the same seed, and the same with another seed."""
    paddle.seed(seed)
    x, y = paddle.randn(SHAPE), paddle.randn(SHAPE)
    results = []
    for offset, fused in ((1, True), (1, False), (2, False)):
        paddle.seed(seed + offset)
        results.append((_computed(x, y, "function", p, MODES[0], True) if fused else F.dropout(x, p) + y).numpy())
    return results[0], results[1], results[2]
