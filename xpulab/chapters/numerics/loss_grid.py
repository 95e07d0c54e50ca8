"""Cross entropy on a grid: kinds of labels, ignored ones, weights, reductions and axes, with the gradient of the logits.

    check.grid("numerics.cross-entropy", losses(types), one_by_one(measure), add_row, level=level, seed=seed, means=...)

Formula: of each row the sum of -target * log_softmax, times the row's weight; ignored rows count neither in sum nor in mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import (
    LAYOUTS,
    VALUES,
    Compared,
    Right,
    add_compared,
    computed,
    far_apart,
    long_sum,
)
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

SMOOTHING = 0.25
"""Of smoothed labels: what is shared equally among all classes."""


@dataclass(frozen=True)
class Labels:
    """A kind of labels. dtype: of their numbers. has_axis: whether they have an axis of one element in place of the classes.

    is_soft: whether they are chances of all classes. smoothing: the argument label_smoothing.
    """

    dtype: str = "int64"
    has_axis: bool = False
    is_soft: bool = False
    smoothing: float = 0.0


LABELS = {
    "int64": Labels(),
    "int32": Labels("int32"),
    "with an axis": Labels(has_axis=True),
    "soft": Labels(is_soft=True),
    "smoothed": Labels(smoothing=SMOOTHING),
    "soft, smoothed": Labels(is_soft=True, smoothing=SMOOTHING),
}

IGNORED = {"-100": -100, "0": 0, "the padding": 1, "the last class": -1, "below all": -7}
"""By name the value of ignore_index; -1 stands for the last class, and for itself where that is the padding."""

ROWS = ((6,), (1,), (), (2, 3), (0,), (33,), (2, 1025))
"""Shapes of what is classified: a batch, one, none, sequences, no row, around a power of two, long ones."""

CLASSES = (7, 1, 129, 1025)


def losses(types: Sequence[str]) -> Grid:
    """The grid of cross entropies. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "target": LABELS,
        "dtype": types,
        "layout": {
            name: LAYOUTS[name] for name in ("contiguous", "transposed", "sliced with an offset", "strided", "broadcast")
        },
        "rows": ROWS,
        "classes": CLASSES,
        "values": {**{name: VALUES[name] for name in ("normal", "a large mean", "ties")}, "far apart": far_apart},
        "ignored": IGNORED,
        "share": {"none": 0.0, "some": 0.3, "all": 1.0},
        "weights": (False, True),
        "reduction": ("mean", "sum", "none"),
        "axis": {"last": -1, "first": 0},
    }
    return Grid(axes, RULES, {"rows": ["(0,)"]})


RULES = {
    "one row cannot be transposed": lambda rows, layout: not rows and layout is LAYOUTS["transposed"],
    "an empty tensor has no row to repeat": lambda rows, layout: 0 in rows and layout is LAYOUTS["broadcast"],
    "the classes of one row have one axis": lambda rows, axis: not rows and axis == 0,
    "soft labels ignore nothing": lambda target, share: (target.is_soft or target.smoothing > 0) and share > 0,
    "soft labels know no ignored class": lambda target, ignored: target.is_soft and ignored != -100,
    "the mean of no row is no number": lambda rows, reduction: 0 in rows and reduction == "mean",
    "many rows have few classes": lambda rows, classes: len(rows) == 2 and classes > 129,
    "an ignored class is one of several": lambda classes, ignored: classes < 3 and ignored not in (-100, -7),
}


def measure(case: Case) -> Compared:
    """Compute the loss and the gradient of the logits on the device in use."""
    labels, rng, classes = case.target, case.rng(), case.classes
    shape = (*case.rows, classes) if case.axis else (classes, *case.rows)
    logits = case.layout(case.values(rng, shape), case.dtype)
    ignored = classes - 1 if case.ignored == -1 else case.ignored
    numbers = rng.integers(0, classes, case.rows)
    if ignored >= 0:
        numbers = np.where(numbers == ignored, (numbers + 1) % classes, numbers)
    is_ignored = rng.random(case.rows) < case.share
    numbers = np.where(is_ignored, ignored, numbers)
    target = np.eye(classes)[np.where(is_ignored, 0, numbers)] * ~is_ignored[..., None]
    if labels.is_soft:
        target = rng.dirichlet(np.ones(classes), case.rows).reshape(*case.rows, classes)
        given = paddle.to_tensor(np.moveaxis(target, -1, case.axis)).astype(case.dtype)
        target = np.moveaxis(given.astype("float64").numpy(), case.axis, -1)
    else:
        of_axis = np.expand_dims(numbers, case.axis) if labels.has_axis else numbers
        given = paddle.to_tensor(of_axis.astype(labels.dtype))
    target = target * (1 - labels.smoothing) + _equal_share(labels, classes) * ~is_ignored[..., None]
    if labels.smoothing and not labels.is_soft:
        target = target.astype("float32").astype("float64")  # Paddle makes chances of numbers in single precision
    weights = np.round(rng.uniform(0.5, 2, classes) * 8) / 8 if case.weights else np.ones(classes)
    of_row = (target * weights).sum(axis=-1) if case.weights else 1.0 * ~is_ignored
    given_weights = paddle.to_tensor(weights).astype(case.dtype) if case.weights else None

    def call(x: paddle.Tensor) -> paddle.Tensor:
        return F.cross_entropy(
            x,
            given,
            weight=given_weights,
            ignore_index=ignored,
            reduction=case.reduction,
            soft_label=labels.is_soft,
            axis=case.axis,
            label_smoothing=labels.smoothing,
        )

    count = of_row.sum() if case.weights else is_ignored.size - is_ignored.sum()
    divisor = (count or 1.0) if case.reduction == "mean" else 1.0
    has_axis = labels.has_axis or labels.is_soft or labels.smoothing > 0
    shape_of_loss = np.expand_dims(numbers, case.axis).shape if has_axis else case.rows
    longer = long_sum(max(1, numbers.size))

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of logits whose last axis are the classes: logarithms, chances, how uncertain both are."""
        below = x - x.max(axis=-1, keepdims=True)
        logarithms = below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
        return logarithms, np.exp(logarithms), 4 + np.abs(x.max(axis=-1, keepdims=True)) + np.abs(x), 4 - 4 * below

    def value(x: np.ndarray) -> Right:
        logarithms, _, terms, _ = parts(np.moveaxis(x, case.axis, -1))
        of_rows = -(target * logarithms).sum(axis=-1) * of_row
        of_terms = (target * terms).sum(axis=-1) * of_row * long_sum(classes**2)  # equal terms are rounded alike
        if case.reduction == "none":
            return of_rows.reshape(shape_of_loss), of_terms.reshape(shape_of_loss)
        return of_rows.sum() / divisor, np.asarray(of_terms.sum() / divisor * longer)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        _, chances, terms, steep = parts(np.moveaxis(x, case.axis, -1))
        each = (weight.reshape(case.rows) if case.reduction == "none" else weight) / divisor * of_row
        slope = (chances * ~is_ignored[..., None] - target) * np.expand_dims(each, -1)  # the sum of a target is 1
        around = (chances * (steep + terms) + target) * np.expand_dims(np.abs(each), -1) * long_sum(classes) * longer
        return [(np.moveaxis(slope, -1, case.axis), np.moveaxis(around, -1, case.axis))]

    return computed(rng, case.dtype, call, [logits], value, slopes)


def _equal_share(labels: Labels, classes: int) -> float:
    """What smoothing gives to each class, which Paddle computes in single precision."""
    return float(np.float32(labels.smoothing) / np.float32(classes))


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case: shapes, loss and gradient, in units of what rounding may cause."""
    kernels = ("cross_entropy_with_softmax", *(["label_smooth"] if case.target.smoothing else []))
    add_compared(rows, case.name, found, case.dtype, kernels, composed=True)  # labels, weights and reduction: operators each
