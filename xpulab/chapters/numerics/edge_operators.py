"""Rows for what kernels of single types, sizes or attributes got wrong, each with its formula.

Offered: ignored_label_rows, gradient_rows, integer_mean_row, fill_rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.precision import BITS, on_device
from xpulab.checks.table import Table

CLASSES, PADDING = 7, 3
"""Of the cross entropy: classes, and the class that stands for padding."""

IGNORED = {"-100": -100, "0": 0, "the padding": PADDING, "the last class": CLASSES - 1}
"""By name the values of ignore_index. All but the first are classes, too."""

COUNT = 4099
"""The largest size that is filled."""

_TOLERANCE = 8.0
"""By how many roundings of the type a result may differ."""


def ignored_label_rows(rows: Table, dtype: str, seed: int) -> None:
    """Rows: losses and their gradient for each ignore_index. The control ignores another label, -100 or 0."""
    rng = np.random.default_rng(seed)
    logits, exact = on_device(rng.standard_normal((4 * CLASSES, CLASSES)), dtype)
    logits.stop_gradient = False
    for name, ignored in IGNORED.items():
        labels = np.tile(np.arange(CLASSES), 4)
        labels[1::CLASSES] = ignored
        losses = F.cross_entropy(logits, paddle.to_tensor(labels), reduction="none", ignore_index=ignored)
        (slopes,) = paddle.grad(losses.sum(), [logits])
        want, other = (_cross_entropy(exact, labels, each) for each in (ignored, 0 if ignored == -100 else -100))
        atol = _TOLERANCE * 2.0 ** -BITS[dtype]
        for what, found, right, wrong in zip(("loss", "gradient"), (losses.squeeze(-1), slopes), want, other, strict=True):
            case = f"cross entropy ignores {name}, {what}, {dtype}"
            rows.close(case, found.astype("float64").numpy(), right, atol=atol * np.abs(right).max(), control=wrong)


def _cross_entropy(logits: np.ndarray, labels: np.ndarray, ignored: int) -> tuple[np.ndarray, np.ndarray]:
    """The losses [rows], and the gradient of their sum [rows, classes]."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances = powers / powers.sum(axis=1, keepdims=True)
    target, counted = np.eye(CLASSES)[labels % CLASSES], labels != ignored
    return -np.log((chances * target).sum(axis=1)) * counted, (chances - target) * counted[:, None]


def gradient_rows(rows: Table, dtype: str, seed: int) -> None:
    """Rows: the gradients of cos, min, tile, mean and take_along_axis with repeated positions. The control is 0."""
    rng = np.random.default_rng(seed)
    x, exact = on_device(rng.standard_normal((5, 6)), dtype)
    x.stop_gradient = False
    least = (exact == exact.min(axis=1, keepdims=True)).astype("float64")
    positions = paddle.zeros([5, 3], "int64")
    cases: dict[str, tuple[Any, np.ndarray]] = {
        "cos": (paddle.cos(x), -np.sin(exact)),
        "min": (x.min(axis=1), least),
        "tile": (paddle.tile(x, [3, 2]), np.full((5, 6), 6.0)),
        "mean": (x.mean(axis=0), np.full((5, 6), 0.2)),
        "take_along_axis": (paddle.take_along_axis(x, positions, 1), np.eye(6)[[0] * 5] * 3),
    }
    for name, (result, want) in cases.items():
        (slope,) = paddle.grad(result.sum(), [x])
        found = slope.astype("float64").numpy()
        rows.close(f"{name}, {dtype}", found, want, atol=_TOLERANCE * 2.0 ** -BITS[dtype], control=0 * want)


def integer_mean_row(rows: Table, dtype: Any) -> None:
    """A row: the gradient of a mean of two integers, half of an upstream gradient that is even; the control is all of it."""
    x = paddle.arange(8, dtype=dtype).reshape([4, 2])
    x.stop_gradient = False
    (slope,) = paddle.grad(x.mean(axis=1), [x], grad_outputs=[paddle.full([4], 6, dtype)])
    rows.equal(f"mean, {dtype}", slope, np.full((4, 2), 3), control=np.full((4, 2), 6))


INTEGERS = ("uint8", "int8", "int16", "int32", "int64")

FILLS: dict[str, tuple[Callable[[int, Any], Any], Sequence[str]]] = {
    "full": (lambda size, dtype: paddle.full([size], 3, dtype), INTEGERS),
    "ones": (lambda size, dtype: paddle.ones([size], dtype), INTEGERS),
    "full_like": (lambda size, dtype: paddle.full_like(paddle.empty([size], dtype), 3), INTEGERS),
    "fill_": (lambda size, dtype: paddle.empty([size], dtype).fill_(3), INTEGERS),
    "arange": (lambda size, dtype: paddle.arange(size, dtype=dtype), ("int32", "int64")),
}
"""By name how a tensor of this size is filled, and the types for which Paddle has a kernel on every device."""


def fill_rows(rows: Table, sizes: Sequence[int]) -> None:
    """A row for each way to fill and type: how many elements are right at each size; the control lacks the last one."""
    counts = np.array(sizes)
    for name, (fill, dtypes) in FILLS.items():
        for dtype in dtypes:
            want = np.arange(max(sizes)) if name == "arange" else np.full(max(sizes), 1 if name == "ones" else 3)
            right = [np.count_nonzero(fill(size, dtype).numpy() == want[:size]) for size in sizes]
            rows.equal(f"{name}, {dtype}", right, counts, control=counts - 1)


def sizes_to_fill(every: bool) -> list[int]:
    """1 to COUNT, or only the small ones, and those around powers of two and at the end."""
    near = {2**power + step for power in range(8, 13) for step in range(-3, 4)}
    return list(range(1, COUNT + 1)) if every else sorted({*range(1, 258), *near})
