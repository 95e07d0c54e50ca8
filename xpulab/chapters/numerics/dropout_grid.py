"""Dropout on a grid: what is kept has the right value, as often as p says, and the gradient has the mask of the forward pass.

    check.grid("random.dropout", dropout(claimed), one_by_one(measure), add_row, level=level, seed=seed, means=...)

No element of the input is 0, so the zeros of the result are what was dropped. How many these are may differ from p by six
standard deviations and two elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import EMPTY, LAYOUTS, RULES, SHAPES, VALUES, Compared, add_compared
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

UPSCALE, DOWNSCALE = "upscale_in_train", "downscale_in_infer"

STRAY, ALWAYS = 6.0, 2.0
"""By how many standard deviations, and by how many elements besides, the number of those that are kept may differ from p."""

OFTEN = 30
"""So many elements that are kept, and so many that are dropped, make two equal masks as good as impossible."""


def _layer(x: paddle.Tensor, case: Case) -> paddle.Tensor:
    layer = paddle.nn.Dropout(case.p, axis=case.axis, mode=case.mode)
    if case.training:
        layer.train()
    else:
        layer.eval()
    return layer(x)


CALLS: dict[str, Callable[[paddle.Tensor, Case], paddle.Tensor]] = {
    "F.dropout": lambda x, case: F.dropout(x, case.p, axis=case.axis, training=case.training, mode=case.mode),
    "nn.Dropout": _layer,
}

_OF_LAYOUTS = (
    "a tensor without axes has no layout",
    "one axis cannot be transposed",
    "an empty tensor has no row to repeat",
)


def dropout(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "p": (0.5, 0.0, 1.0, 0.1, 0.75),
        "dtype": types,
        "mode": (UPSCALE, DOWNSCALE),
        "axis": (None, 0, 1, (0, 1)),
        "training": {"training": True, "evaluation": False},
        "call": CALLS,
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": {name: VALUES[name] for name in ("normal", "near one", "a large mean", "negative")},
    }
    rules: dict[str, Callable[..., bool]] = {
        **{reason: RULES[reason] for reason in _OF_LAYOUTS},
        "the tensor needs the axis": lambda shape, axis: axis is not None and len(shape) <= np.max(axis),
    }
    return Grid(axes, rules, EMPTY)


def measure(case: Case) -> Compared:
    """Drop on the device in use: the result, its gradient, the mask, the same again, and what is counted."""
    rng, p = case.rng(), case.p
    drawn = case.values(rng, case.shape)
    tensor = case.layout(drawn + np.copysign(0.25, drawn), case.dtype).detach()
    tensor.stop_gradient = False
    x = tensor.astype("float64").numpy()
    paddle.seed(case.seed)
    result = CALLS[case.labels["call"]](tensor, case)
    following = CALLS[case.labels["call"]](tensor, case)
    paddle.seed(case.seed)
    again = CALLS[case.labels["call"]](tensor, case)
    weight = paddle.to_tensor(rng.uniform(0.5, 1.5, case.shape)).astype(case.dtype)
    (slope,) = paddle.grad([result], [tensor], [weight])
    found, later, same, slopes, g = (_exact(each) for each in (result, following, again, slope, weight))

    kept = found != 0
    scale = 1.0
    if case.training and case.mode == UPSCALE and p < 1:
        scale = 1 / (1 - p)
    if not case.training:
        kept, scale = np.ones(case.shape, bool), 1 - p if case.mode == DOWNSCALE else 1.0
    mask, drawn_once = _mask(case, kept)
    counts = _counts(case, drawn_once, found, later)
    arrays = [found, slopes, kept * 1.0, same, np.array([each for each, _ in counts])]
    right = [kept * scale * x, kept * scale * g, mask * 1.0, found, np.array([each for _, each in counts])]
    terms = [np.abs(right[0]), np.abs(right[1]), *(0 * each for each in right[2:])]
    return Compared(arrays, right, terms)


def _exact(tensor: paddle.Tensor) -> np.ndarray:
    return np.asarray(tensor.astype("float64").numpy())


def _mask(case: Case, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mask that one draw for each place of the axes would make of this one, and these draws."""
    if case.axis is None or not kept.size:
        return kept, kept
    of_axes = (case.axis,) if isinstance(case.axis, int) else case.axis
    once = kept[tuple(slice(None) if axis in of_axes else slice(0, 1) for axis in range(kept.ndim))]
    return np.broadcast_to(once, kept.shape), once


def _counts(case: Case, drawn: np.ndarray, found: np.ndarray, later: np.ndarray) -> list[tuple[float, float]]:
    """What is counted, and what it must be: how many too many or too few are kept, and whether a second mask is another."""
    if not case.training or not drawn.size:
        return [(0.0, 0.0)]
    expected, deviation = drawn.size * (1 - case.p), math.sqrt(drawn.size * case.p * (1 - case.p))
    beyond = max(0.0, abs(drawn.sum() - expected) - STRAY * deviation - ALWAYS * (0 < case.p < 1))
    counts = [(beyond, 0.0)]
    if drawn.size * min(case.p, 1 - case.p) >= OFTEN:
        counts.append((float((found != later).any()), 1.0))
    return counts


def add_row(rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case."""
    add_compared(rows, case.name, found, case.dtype, ("dropout",))
