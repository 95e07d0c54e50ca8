"""Losses of two tensors, and operators with options that no other grid has, beside their formulas in double precision.

    check.grid("numerics.options", options(types), *RUN, level=level, seed=seed, means=...)

Cross entropy, whose target is a number of a class, and attention stand in layer_grids. An epsilon is large here: it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import VALUES
from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, LAYOUTS, OF_LAYOUTS, SHAPES, Right, Rules, Shape, computed, moved
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import long_sum
from xpulab.reference.operators import log_softmax, sigmoid, slope_of_softmax, softmax, steepness, total

Formula = Callable[..., Any]


def _itself(drawn: np.ndarray) -> np.ndarray:
    return drawn


def _chance(drawn: np.ndarray) -> np.ndarray:
    return 0.5 + 0.4 * np.sin(drawn)


@dataclass(frozen=True)
class Option:
    """An operator with options, of two tensors of one shape, of which it may leave out the second one.

    call: Paddle's, of both and the case. value: the result and how large the terms are that rounding may change, of the arrays
    and the case. slopes: the gradients, of the weight, the arrays and the case: two, one, or none. kernel: Paddle's name of it.
    reads: of the axes `axis`, `reduction` and `weight` of the grid those that it has. fits: which shapes it takes.
    of: what makes of drawn numbers those that the two tensors have. learn: how many of both have gradients.
    """

    call: Formula
    value: Callable[..., Right]
    slopes: Callable[..., Sequence[Right]]
    kernel: str
    reads: str = ""
    fits: Callable[[Shape], bool] = lambda shape: True
    of: tuple[Formula, Formula] = (_itself, _itself)
    learn: int = 1


# ----------------------------------------------------------------------------------------------------------------- losses


def _loss(
    name: str,
    each: Formula,
    slopes: Formula,
    kernel: str,
    terms: Formula | None = None,
    more: Formula | None = None,
    **given: Any,
) -> Option:
    """A loss of each element, and its derivatives. more: further arguments, by the shape. given: those, or fields of Option."""
    reads, of, learn = given.pop("reads", "reduction"), given.pop("of", (_itself, _itself)), given.pop("learn", 1)

    def call(x: Any, y: Any, case: Case) -> Any:
        factors = {"weight": paddle.to_tensor(_factors(case)).astype(x.dtype)} if case.weight else {}
        further = {key: paddle.to_tensor(value).astype(x.dtype) for key, value in (more(x.shape) if more else {}).items()}
        return getattr(F, name)(x, y, reduction=case.reduction, **given, **factors, **further)

    def sizes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(terms(x, y) if terms else np.abs(each(x, y)) + np.abs(slopes(x, y)[0]))

    def value(x: np.ndarray, y: np.ndarray, case: Case) -> Right:
        both, factors = (each(x, y), sizes(x, y)), _factors(case)
        found, uncertain = (np.asarray(part * factors) for part in both)
        if case.reduction == "none":
            return found, uncertain
        divisor = {"mean": x.size, "batchmean": (*x.shape, 1)[0], "sum": 1}[case.reduction]
        return found.sum() / divisor, np.asarray(uncertain.sum() / divisor * long_sum(x.size))

    def of_all(weight: np.ndarray, x: np.ndarray, y: np.ndarray, case: Case) -> list[Right]:
        divisor = {"mean": x.size, "batchmean": (*x.shape, 1)[0]}.get(case.reduction, 1)
        share = weight * _factors(case) / divisor
        return [(slope * share, (np.abs(slope) + sizes(x, y)) * np.abs(share)) for slope in slopes(x, y)]

    return Option(call, value, of_all, kernel, reads, of=of, learn=learn)


def _factors(case: Case) -> np.ndarray:
    """The weights of the elements, each exact in every type."""
    shape = case.weight(case.shape) if case.weight else ()
    return np.asarray(1 + np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5 / 4)


def _huber(delta: float, is_huber: bool = True) -> Option:
    """Paddle's "smooth L1" is Huber's loss, which is delta times the smooth L1 of others."""
    share = 1.0 if is_huber else 1 / delta
    return _loss(
        "smooth_l1_loss",
        lambda x, y: share * np.where(np.abs(x - y) <= delta, (x - y) ** 2 / 2, delta * (np.abs(x - y) - delta / 2)),
        lambda x, y: (share * np.clip(x - y, -delta, delta), share * np.clip(y - x, -delta, delta)),
        "huber_loss",
        delta=delta,
        is_huber=is_huber,
        learn=2,
    )


def _positives(shape: Sequence[int]) -> np.ndarray:
    """The weight of the positives in each column."""
    return np.asarray(1 + np.arange(shape[-1]) % 3 / 2 if shape else 1.5)


def _of_logits(positives: Formula, more: Formula | None = None) -> Option:
    return _loss(
        "binary_cross_entropy_with_logits",
        lambda x, y: (1 - y) * x + (1 + (positives(x.shape) - 1) * y) * np.logaddexp(0, -x),
        lambda x, y: (sigmoid(x) * (1 + (positives(x.shape) - 1) * y) - positives(x.shape) * y,),
        "sigmoid_cross_entropy_with_logits",
        lambda x, y: 4 * (1 + np.abs(x)) * (1 + positives(x.shape)),
        more,
        reads="reduction weight",
        of=(_itself, _chance),
    )


_LOSSES = {
    "l1_loss": _loss("l1_loss", lambda x, y: np.abs(x - y), lambda x, y: (np.sign(x - y), np.sign(y - x)), "abs", learn=2),
    "mse_loss": _loss("mse_loss", lambda x, y: (x - y) ** 2, lambda x, y: (2 * (x - y), 2 * (y - x)), "square", learn=2),
    "smooth_l1_loss": _huber(1.0),
    "smooth_l1_loss, delta": _huber(0.5),
    "smooth_l1_loss, is_huber=False": _huber(0.25, False),
    "kl_div": _loss(
        "kl_div",
        lambda x, y: np.where(y > 0, y * (np.log(np.where(y > 0, y, 1)) - x), 0),
        lambda x, y: (-y,),
        "kldiv_loss",
        reads="reduction batchmean",
        of=(_itself, lambda drawn: np.maximum(np.sin(drawn), 0)),
    ),
    "kl_div, log_target": _loss(
        "kl_div",
        lambda x, y: np.exp(y) * (y - x),
        lambda x, y: (-np.exp(y),),
        "kldiv_loss",
        lambda x, y: 4 * np.exp(y) * (2 + np.abs(x)),
        reads="reduction batchmean",
        of=(_itself, np.sin),
        log_target=True,
    ),
    "binary_cross_entropy": _loss(
        "binary_cross_entropy",
        lambda x, y: -y * np.log(x) - (1 - y) * np.log(1 - x),
        lambda x, y: ((x - y) / (x * (1 - x)),),
        "bce_loss",
        lambda x, y: 2 / (x * (1 - x)),
        reads="reduction weight",
        of=(_chance, _chance),
    ),
    "binary_cross_entropy_with_logits": _of_logits(lambda shape: 1.0),
    "binary_cross_entropy_with_logits, pos_weight": _of_logits(_positives, lambda shape: {"pos_weight": _positives(shape)}),
}

# -------------------------------------------------------------------------------------------------------------- operators


def _has_axes(shape: Shape) -> bool:
    return bool(shape) and 0 not in shape


def _is_table(shape: Shape) -> bool:
    return len(shape) == 2 and 0 not in shape


def _ids(table: Any) -> np.ndarray:
    """Rows of a table, of which half never occur, and others several times."""
    rows = table.shape[0]
    return np.asarray(7 * np.arange(rows + 3) % (rows // 2 + 1))


def _embedding(limit: tuple[float, float] | None = None, **options: Any) -> Option:
    """With the table behind the rows, which a limit of the norm (the most, which norm) changes in place."""

    def limited(table: np.ndarray) -> np.ndarray:
        if not limit:
            return table
        norms = (np.abs(table) ** limit[1]).sum(axis=1, keepdims=True) ** (1 / limit[1])
        is_long = (norms > limit[0]) & np.isin(np.arange(len(table)), _ids(table))[:, None]
        return table * np.where(is_long, limit[0] / (norms + 1e-7), 1)

    def call(x: Any, y: Any, case: Case) -> Any:
        named: dict[str, Any] = {"max_norm": limit[0], "norm_type": limit[1]} if limit else {}
        found = F.embedding(paddle.to_tensor(_ids(x)), x, **named, **options)
        return paddle.concat([found, x.detach()])

    def value(x: np.ndarray, y: np.ndarray, case: Case) -> Right:
        found = np.concatenate([limited(x)[_ids(x)], limited(x)])
        return found, 4 * np.abs(found) * long_sum(x.shape[1])

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, case: Case) -> list[Right]:
        slope, counts = np.zeros_like(x), np.bincount(_ids(x), minlength=len(x))[:, None]
        np.add.at(slope, _ids(x), weight[: -len(x)])
        return [(slope / (np.maximum(counts, 1) if options else 1), slope * long_sum(len(x)))]

    return Option(call, value, slopes, "embedding", fits=_is_table)


def _softmax(call: Formula, kernel: str = "softmax") -> Option:
    def value(x: np.ndarray, y: np.ndarray, case: Case) -> Right:
        chances = softmax(x, case.axis)
        return chances, steepness(x, case.axis) * chances * long_sum(x.shape[case.axis] ** 2)  # equal terms are rounded alike

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, case: Case) -> list[Right]:
        slope = slope_of_softmax(softmax(x, case.axis), weight, case.axis)
        return [(slope, (np.abs(slope) + np.abs(weight).mean()) * steepness(x, case.axis) * long_sum(x.shape[case.axis]))]

    return Option(call, value, slopes, kernel, "axis", _has_axes)


def _of_dtype(result: Any, dtype: Any) -> Any:
    """The result, which must have this type. Raises TypeError."""
    if result.dtype != dtype:
        raise TypeError(f"the result has the type {result.dtype}, not {dtype}")
    return result


def _padding(size: int) -> list[int]:
    """Before and after each axis, all of them different."""
    return [(place * 2 + side) % 3 for place in range(size) for side in (1, 2)]


def _pad(call: Formula, formula: Formula, fits: Callable[[Shape], bool]) -> Option:
    value, slopes = moved(formula)
    return Option(
        lambda x, y, case: call(x),
        lambda x, y, case: value(x),
        lambda weight, x, y, case: slopes(weight, x),
        "pad3d",
        fits=fits,
    )


def _padded(mode: Any, of_numpy: Any) -> Option:
    """Three axes, of which the last has all elements."""
    return _pad(
        lambda x: F.pad(x.reshape([1, 1, -1]), [1, 2], mode=mode, data_format="NCL"),
        lambda x: np.pad(x.reshape(1, 1, -1), ((0, 0), (0, 0), (1, 2)), mode=of_numpy),
        lambda shape: int(np.prod(shape)) > 2,
    )


def _normalize(p: float, epsilon: float, learn: int = 1, fits: Callable[[Shape], bool] = _has_axes) -> Option:
    """With a large epsilon the gradient is wrong in Paddle 3.3.1, which one entry shows; the others have a small one, or none.

    fits: as in Option. p: a power of two, as kernels round 1 / p to float32, in float64 too.
    """

    def norm_of(x: np.ndarray, axis: int) -> Any:
        return total(np.abs(x) ** p, axis) ** (1 / p)

    def value(x: np.ndarray, y: np.ndarray, case: Case) -> Right:
        found = x / np.maximum(norm_of(x, case.axis), epsilon)
        return found, 8 * np.abs(found) * long_sum(x.shape[case.axis])

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, case: Case) -> list[Right]:
        norm = norm_of(x, case.axis)
        most, longer = np.maximum(norm, epsilon), long_sum(x.shape[case.axis])
        with np.errstate(invalid="ignore", divide="ignore"):
            of_norm = np.where(norm > epsilon, np.sign(x) * np.abs(x) ** (p - 1) / norm ** (p - 1), 0)
        first, second = weight / most, total(weight * x, case.axis) / most**2 * of_norm
        sizes = np.abs(first) + total(np.abs(weight * x), case.axis) / most**2 * np.abs(of_norm)
        return [(first - second, 8 * sizes * longer)]

    return Option(lambda x, y, case: F.normalize(x, p, case.axis, epsilon), value, slopes, "p_norm", "axis", fits, learn=learn)


_LEAST_COSINE = 2.1
"""The least product of both norms that a cosine is divided by; no case has just this one."""


def _cosine(x: np.ndarray, y: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cosines, how uncertain they are, and, with the axis kept, what they are divided by."""
    divisor = np.maximum(np.sqrt(total(x**2, axis) * total(y**2, axis)), _LEAST_COSINE)
    found, sizes = ((each / divisor).sum(axis=axis) for each in (x * y, np.abs(x * y)))
    return found, 8 * sizes * long_sum(x.shape[axis]), divisor


def _slope_of_cosine(weight: np.ndarray, x: np.ndarray, y: np.ndarray, axis: int) -> Right:
    """By x."""
    found, _, divisor = _cosine(x, y, axis)
    of_norm = np.where(divisor > _LEAST_COSINE, x / np.maximum(total(x**2, axis), 1e-300), 0)
    second = np.expand_dims(found, axis) * of_norm
    return weight * (y / divisor - second), 16 * np.abs(weight) * (np.abs(y) / divisor + np.abs(of_norm)) * long_sum(
        x.shape[axis]
    )


def _prior(shape: Sequence[int]) -> np.ndarray:
    """Of label_smooth, [1, classes]."""
    return (1 + np.arange(shape[-1]) % 4)[None] / 4


OPTIONS: dict[str, Option] = {
    **_LOSSES,
    "softplus, beta and threshold": Option(
        lambda x, y, case: F.softplus(x, beta=2.0, threshold=3.0),
        lambda x, y, case: (np.where(2 * x > 3, x, np.logaddexp(0, 2 * x) / 2), 1 + 2 * np.abs(x)),
        lambda weight, x, y, case: [(weight * np.where(2 * x > 3, 1, sigmoid(2 * x)), weight * (1 + np.minimum(np.abs(x), 8)))],
        "softplus",
    ),
    "softmax_": _softmax(lambda x, y, case: F.softmax_(x * 1, case.axis)),
    "softmax_, dtype": _softmax(lambda x, y, case: _of_dtype(F.softmax_(x * 1, case.axis, dtype="float64"), paddle.float64)),
    "log_softmax, dtype": Option(
        lambda x, y, case: _of_dtype(F.log_softmax(x, case.axis, dtype="float64"), paddle.float64),
        lambda x, y, case: (log_softmax(x, case.axis), (4 + np.abs(x) + np.abs(x).max()) * long_sum(x.shape[case.axis])),
        lambda weight, x, y, case: [
            (weight - softmax(x, case.axis) * total(weight, case.axis), (1 + np.abs(weight) * x.size) * steepness(x, case.axis))
        ],
        "log_softmax",
        "axis",
        _has_axes,
    ),
    "glu, axis": Option(
        lambda x, y, case: F.glu(paddle.concat([x, y], case.axis), case.axis),
        lambda x, y, case: (x * sigmoid(y), np.abs(x) * (1 + np.minimum(np.abs(y), 8))),
        lambda weight, x, y, case: [
            (weight * sigmoid(y), np.abs(weight) * (1 + np.minimum(np.abs(y), 8))),
            (weight * x * sigmoid(y) * sigmoid(-y), np.abs(weight * x) * (1 + np.minimum(np.abs(y), 8))),
        ],
        "sigmoid",
        "axis",
        _has_axes,
        learn=2,
    ),
    "sequence_mask, maxlen and dtype": Option(
        lambda x, y, case: _of_dtype(F.sequence_mask(x.astype("int64"), 5, x.dtype), x.dtype),
        lambda x, y, case: (1.0 * (np.arange(5) < np.trunc(x)[..., None]), np.zeros((*x.shape, 5))),
        lambda weight, x, y, case: [],
        "sequence_mask",
        learn=0,
    ),
    "label_smooth, prior_dist and epsilon": Option(
        lambda x, y, case: F.label_smooth(x, paddle.to_tensor(_prior(x.shape)).astype(x.dtype), 0.25),
        lambda x, y, case: (0.75 * x + 0.25 * _prior(x.shape), 1 + np.abs(x)),
        lambda weight, x, y, case: [(0.75 * weight, weight)],
        "label_smooth",
        fits=lambda shape: len(shape) > 1 and 0 not in shape,
    ),
    "pad, reflect": _padded("reflect", "reflect"),
    "pad, replicate": _padded("replicate", "edge"),
    "pad, circular": _padded("circular", "wrap"),
    "pad, from the right": _pad(
        lambda x: F.pad(x, _padding(x.ndim), pad_from_left_axis=False),
        lambda x: np.pad(x, [*zip(*[iter(_padding(x.ndim))] * 2, strict=True)][::-1]),
        lambda shape: _has_axes(shape) and len(shape) < 5,
    ),
    "normalize, p 1": _normalize(1.0, 1e-30),
    "normalize, p 4": _normalize(4.0, 1e-30),
    "normalize, epsilon": _normalize(4.0, 0.25, learn=0),
    "normalize, gradient beside epsilon": _normalize(1.0, 4.0, fits=lambda shape: shape == (6, 5)),
    "cosine_similarity, axis and eps": Option(
        lambda x, y, case: F.cosine_similarity(x, y, case.axis, _LEAST_COSINE),
        lambda x, y, case: _cosine(x, y, case.axis)[:2],
        lambda weight, x, y, case: [
            _slope_of_cosine(np.expand_dims(weight, case.axis), *pair, case.axis) for pair in ((x, y), (y, x))
        ],
        "multiply",
        "axis",
        _has_axes,
        learn=2,
    ),
    "embedding, max_norm": _embedding((1.5, 2.0)),
    "embedding, norm_type": _embedding((1.5, 1.0)),
    "embedding, scale_grad_by_freq": _embedding(scale_grad_by_freq=True),
}
"""By name, with the option that has another value than its default."""

WEIGHTS: dict[str, Any] = {"none": None, "of elements": lambda shape: shape, "of columns": lambda shape: shape[-1:]}


def options(types: Sequence[str]) -> Grid:
    """The grid. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "operator": tuple(OPTIONS),
        "dtype": types,
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": VALUES,
        "axis": (-1, 0),
        "reduction": ("none", "mean", "sum", "batchmean"),
        "weight": WEIGHTS,
    }
    rules: Rules = {
        **OF_LAYOUTS,
        "not every shape fits": lambda operator, shape: not OPTIONS[operator].fits(shape),
        "only some have an axis": lambda operator, axis: axis != -1 and "axis" not in OPTIONS[operator].reads,
        "only losses are reduced": lambda operator, reduction: (
            reduction != "none" and (reduction if reduction == "batchmean" else "reduction") not in OPTIONS[operator].reads
        ),
        "only some losses are weighted": lambda operator, weight: weight and "weight" not in OPTIONS[operator].reads,
        "the mean of nothing is no number": lambda shape, reduction: (
            (0 in shape and reduction == "mean") or (reduction == "batchmean" and (not shape or 0 in shape))
        ),
        "the device has no kernel for this type": lambda operator, dtype: bool(lacked(OPTIONS[operator].kernel, dtype)),
        "a logit near zero may be 0 in float16, where the gradient is a known defect": lambda operator, dtype, values: (
            operator == "binary_cross_entropy_with_logits" and dtype == "float16" and values is VALUES["near zero"]
        ),
        "squares of squares leave float16": lambda operator, dtype: operator.startswith("cosine") and dtype == "float16",
        "a sum of a thousand large numbers leaves float16": lambda operator, dtype, shape, values: (
            operator.startswith(("normalize", "embedding, "))
            and dtype == "float16"
            and max(shape, default=0) > 1000
            and values is VALUES["a large mean"]
        ),
    }
    further: Rules = {
        **interesting.RULES,
        "equal terms of a long sum are rounded alike": lambda shape, layout: layout in interesting.REPEATED
        and max(shape) > 1025,
        "an embedding with a limit writes to its table": lambda operator, layout: (
            layout in interesting.REPEATED and operator in ("embedding, max_norm", "embedding, norm_type")
        ),
        "a norm of so many numbers leaves float16": lambda operator, dtype, shape: (
            operator.startswith(("normalize", "embedding")) and dtype == "float16" and max(shape) > 1025
        ),
        "a norm of zeros has no slope": lambda operator, values: (
            operator.startswith("normalize") and values in interesting.WITH_ZEROS
        ),
    }
    return Grid(axes, rules, EMPTY).with_further(interesting.OF_NUMBERS, further)


def _measure(case: Case) -> Compared:
    option, rng = OPTIONS[case.operator], case.rng()
    arrays = [make(case.values(rng, case.shape)) for make in option.of]
    given = [case.layout.tensor(each, case.dtype) for each in arrays]
    return computed(
        rng,
        case.dtype,
        lambda x, y: option.call(x, y, case),
        given,
        lambda x, y: option.value(x, y, case),
        (lambda weight, x, y: option.slopes(weight, x, y, case)) if option.learn else None,
        range(option.learn, 2),
        composed=True,
    )


RUN = one_by_one(_measure), add_row_of(lambda case: [(OPTIONS[case.operator].kernel, case.dtype, "")])
