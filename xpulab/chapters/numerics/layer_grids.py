"""The operators of a model's layers on grids: products, norms, cross entropy, attention, rotary positions and dropout.

    check.grid("numerics.products", products(claimed), *run_products(kept), level=level, seed=seed, means=...)

Axes, layouts and the computation of a case are those of operator_grids. Fused operators stand in the grid of what they compute.
kept: by type the bits that products of the device keep of their factors, where they are fewer than the type has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.incubate.nn.functional as fused
import paddle.nn.functional as F
from paddle.incubate.operators.softmax_mask_fuse_upper_triangle import softmax_mask_fuse_upper_triangle
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2
from paddlenlp.transformers.qwen2_moe import modeling as qwen2_moe

from xpulab.chapters.numerics.operator_grids import (
    EMPTY,
    LAYOUTS,
    OF_LAYOUTS,
    SAVED,
    SHAPES,
    VALUES,
    Right,
    Rules,
    chosen,
    computed,
    within_bounds,
)
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import BITS, LEAST, long_sum
from xpulab.reference.operators import log_softmax, normalized, rotated, slope_of_normalized, slope_of_softmax, softmax, summed

Shape = tuple[int, ...]
Kept = Mapping[str, int]

# --------------------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True)
class Product:
    """A product of two tensors, and what is added to it.

    call: Paddle's, of both and of what is added. form: the indices of left, right and result as einsum has them; "..." stands
    for the axes of a batch. m and n are rows and columns, k is summed; b is 2. kernel: Paddle's name of it.
    added: the shape of what is added, of the result's; None for nothing. factor: of the product. share: of what is added.
    """

    call: Callable[..., Any]
    form: str
    kernel: str = "matmul"
    added: Callable[[Shape], Shape] | None = None
    factor: float = 1.0
    share: float = 1.0

    @property
    def indices(self) -> tuple[str, str, str]:
        """Of left, right and result."""
        left, _, rest = self.form.partition(",")
        return left, *rest.split("->")  # type: ignore[return-value]


def _einsum(form: str, letters: str) -> Product:
    """As PaddleNLP's gates and layers of experts call it. letters: the same form in those of this module."""
    return Product(lambda x, y: paddle.einsum(form, x, y), letters, "einsum")


def _matmul(form: str, **transposed: bool) -> Product:
    return Product(lambda x, y: paddle.matmul(x, y, **transposed), form)


def _added(call: Callable[..., Any], kernel: str = "matmul") -> Product:
    """A linear layer with a bias."""
    return Product(call, "...mk,kn->...mn", kernel, added=lambda shape: shape[-1:])


_ALPHA, _BETA = 2.0, -0.5
"""Of addmm: the factors of the product and of what is added. Exact in every type, and no defaults."""


def _addmm(shape: Callable[[Shape], Shape]) -> Product:
    def call(x: Any, y: Any, given: Any) -> Any:
        return paddle.addmm(given, x, y, beta=_BETA, alpha=_ALPHA)

    return Product(call, "mk,kn->mn", "addmm", shape, _ALPHA, _BETA)


PRODUCTS = {
    "matmul": _matmul("...mk,...kn->...mn"),
    "matmul, transpose_x": _matmul("...km,...kn->...mn", transpose_x=True),
    "matmul, transpose_y": _matmul("...mk,...nk->...mn", transpose_y=True),
    "matmul, transpose both": _matmul("...km,...nk->...mn", transpose_x=True, transpose_y=True),
    "matmul, a vector left": _matmul("k,...kn->...n"),
    "matmul, a vector right": _matmul("...mk,k->...m"),
    "matmul, two vectors": _matmul("k,k->"),
    "x @ y": Product(lambda x, y: x @ y, "...mk,...kn->...mn"),
    "mm": Product(lambda x, y: paddle.mm(x, y), "mk,kn->mn"),
    "bmm": Product(lambda x, y: paddle.bmm(x, y), "bmk,bkn->bmn", "bmm"),
    "linear": Product(lambda x, y: F.linear(x, y), "...mk,kn->...mn"),
    "linear with a bias": _added(lambda x, y, bias: F.linear(x, y, bias)),
    "fused_linear": _added(lambda x, y, bias: fused.fused_linear(x, y, bias), "fused_gemm_epilogue"),
    "fused_matmul_bias": _added(lambda x, y, bias: fused.fused_matmul_bias(x, y, bias), "fused_gemm_epilogue"),
    "addmm": _addmm(lambda shape: shape),
    "addmm of a row": _addmm(lambda shape: (1, shape[1])),
    "dot": Product(lambda x, y: paddle.dot(x, y), "bk,bk->b", "dot"),
    "outer": Product(lambda x, y: paddle.outer(x, y), "m,n->mn", "multiply"),
    "einsum s,se->se": _einsum("s,se->se", "k,kn->kn"),
    "einsum se,se->s": _einsum("se,se->s", "mk,mk->m"),
    "einsum se,sc->sec": _einsum("se,sc->sec", "mk,mn->mkn"),
    "einsum se,sec->sec": _einsum("se,sec->sec", "mk,mkn->mkn"),
    "einsum sec,sm->ecm": _einsum("sec,sm->ecm", "kmb,kn->mbn"),
    "einsum sec,ecm->sm": _einsum("sec,ecm->sm", "mbk,bkn->mn"),
    "einsum ij,k->ijk": _einsum("ij,k->ijk", "mk,n->mkn"),
    "einsum th,tho->to": _einsum("th,tho->to", "mk,mkn->mn"),
}
"""Products that Paddle's layers, PaddleNLP's models and this book call."""

SIZES = {
    "4 x 5 x 6": (4, 5, 6),
    "square": (4, 4, 4),
    "one": (1, 1, 1),
    "one row": (1, 7, 3),
    "one column": (1025, 3, 1),
    "one term": (5, 1, 3),
    "no row": (0, 4, 3),
    "nothing summed": (3, 0, 2),
    "around 32": (31, 33, 32),
    "around 128": (3, 127, 129),
    "a long sum": (2, 1025, 3),
}
"""By name how many rows, summed terms and columns: m, k and n."""

BATCHES: Mapping[str, tuple[Shape, Shape]] = {
    "none": ((), ()),
    "the same": ((2,), (2,)),
    "left only": ((3,), ()),
    "right only": ((), (3,)),
    "both repeated": ((2, 1), (1, 3)),
    "a batch of one": ((1,), (4,)),
    "three axes": ((2, 3, 2), (2, 3, 2)),
}
"""By name the axes of the batch left and right."""


def products(types: Sequence[str]) -> Grid:
    """The grid of products. types: the floating types that the device has."""

    def excluded(
        product: str, layout: Any, other: Any, sizes: Any, batch: Any, name: str, why: Callable[[Shape], bool]
    ) -> bool:
        shapes = _factors(PRODUCTS[product], sizes, batch)
        return any(each is LAYOUTS[name] and why(shape) for each, shape in zip((layout, other), shapes, strict=True))

    axes: dict[str, Any] = {
        "product": tuple(PRODUCTS),
        "dtype": types,
        "layout": LAYOUTS,
        "other": LAYOUTS,
        "sizes": SIZES,
        "batch": BATCHES,
        "values": VALUES,
        "frozen": {"nothing": (), "left": (0,), "right": (1,)},
        "saved": SAVED,
    }
    rules: Rules = {
        "one axis cannot be transposed": lambda product, layout, other, batch: excluded(
            product, layout, other, (2, 2, 2), batch, "transposed", lambda shape: len(shape) < 2
        ),
        "an empty tensor has no row to repeat": lambda product, layout, other, sizes: excluded(
            product, layout, other, sizes, ((), ()), "broadcast", lambda shape: 0 in shape
        ),
        "this product has no batch there": lambda product, batch: any(
            axes and "..." not in indices for axes, indices in zip(batch, PRODUCTS[product].indices, strict=False)
        ),
        "the device has no kernel for this type": lambda product, dtype: bool(lacked(PRODUCTS[product].kernel, dtype)),
        "Paddle 3.3.1 leaves the result of bmm unset where nothing is summed": lambda product, sizes: (
            product == "bmm" and not sizes[1]
        ),
        "Paddle 3.3.1 crashes in the gradient of addmm of nothing where a factor is frozen": lambda product, sizes, frozen: (
            product.startswith("addmm") and bool(frozen) and 0 in sizes
        ),
    }
    return Grid(axes, rules, {"sizes": ["no row", "nothing summed"]})


def _factors(product: Product, sizes: Shape, batch: Any) -> list[Shape]:
    """The shapes of both factors."""
    of_index = dict(zip("mkn", sizes, strict=True)) | {"b": 2}
    return [
        (*axes, *(of_index[index] for index in indices.removeprefix("...")))
        for indices, axes in zip(product.indices, batch, strict=False)
    ]


def _measure_product(kept: Kept, case: Case) -> Compared:
    product, rng = PRODUCTS[case.product], case.rng()
    left, right = _factors(product, case.sizes, case.batch)
    of_left, of_right, of_result = product.indices
    given = [case.layout(case.values(rng, left), case.dtype), case.other(case.values(rng, right), case.dtype)]
    if product.added:
        shape = np.einsum(product.form, np.zeros(left), np.zeros(right)).shape
        given.append(paddle.to_tensor(rng.standard_normal(product.added(shape))).astype(case.dtype))

    def value(x: np.ndarray, y: np.ndarray, *added: np.ndarray) -> Right:
        exact, terms = (product.factor * np.einsum(product.form, *pair) for pair in ((x, y), (np.abs(x), np.abs(y))))
        terms = np.abs(terms) * long_sum(x.size * y.size // max(1, exact.size))
        for each in added:
            exact, terms = exact + product.share * each, terms + np.abs(product.share * each)
        return exact, terms

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, *added: np.ndarray) -> list[Right]:
        found = [
            _slope(product.factor * weight, of_result, y, of_right, x, of_left),
            _slope(product.factor * weight, of_result, x, of_left, y, of_right),
        ]
        for each in added:
            slope, terms = (summed(of(product.share * weight), each) for of in (np.asarray, np.abs))
            found.append((slope, terms * long_sum(weight.size // max(1, each.size))))
        return found

    is_sum = product.added is not None  # of two operators where a layer is not one
    bits = kept.get(case.dtype)
    return computed(rng, case.dtype, product.call, given, value, slopes, case.frozen, bits, is_sum, case.saved)


def _slope(weight: np.ndarray, indices: str, factor: np.ndarray, of_factor: str, of: np.ndarray, of_wanted: str) -> Right:
    """The gradient of one factor: the weight of the result times the other factor, summed to the shape of the one."""
    wanted = of_wanted if "..." in of_wanted or "..." not in indices + of_factor else f"...{of_wanted}"
    slope, terms = (
        summed(np.einsum(f"{indices},{of_factor}->{wanted}", *pair), of)
        for pair in ((weight, factor), (np.abs(weight), np.abs(factor)))
    )
    return slope, terms * long_sum(weight.size * factor.size // max(1, of.size))


def run_products(kept: Kept) -> tuple[Any, Any]:
    """What check.grid takes as run and add_row."""
    return one_by_one(partial(_measure_product, kept)), add_row_of(
        lambda case: [(PRODUCTS[case.product].kernel, case.dtype, "")]
    )


# ------------------------------------------------------------------------------------------------------------------ norms


@dataclass(frozen=True)
class Norm:
    """A normalization over the last axes.

    call: Paddle's, of the input, weight and bias or None, and epsilon. kernel: Paddle's name of it. axes: how many.
    is_centered: whether the mean is subtracted. trains: whether Paddle defines a gradient; operators for inference have none.
    """

    call: Callable[..., Any]
    kernel: str
    axes: int = 1
    is_centered: bool = True
    trains: bool = True


def _rms_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    """As LlamaRMSNorm and Qwen2RMSNorm of PaddleNLP compute it: in float32, but for float64 here."""
    wide = x if x.dtype == paddle.float64 else x.astype("float32")
    normal = (paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * wide).astype(x.dtype)
    return normal if weight is None else normal * weight


def _fused_norm(name: str) -> Callable[..., Any]:
    def call(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
        norm = getattr(fused, name)
        return norm(x, weight, paddle.zeros_like(weight) if bias is None else bias, epsilon, begin_norm_axis=x.ndim - 1)[0]

    return call


NORMS = {
    "layer_norm": Norm(lambda x, weight, bias, epsilon: F.layer_norm(x, x.shape[-1:], weight, bias, epsilon), "layer_norm"),
    "layer_norm of two axes": Norm(
        lambda x, weight, bias, epsilon: F.layer_norm(x, x.shape[-2:], weight, bias, epsilon), "layer_norm", axes=2
    ),
    "RMS norm": Norm(_rms_norm, "rsqrt", is_centered=False),
    "fused_rms_norm": Norm(_fused_norm("fused_rms_norm"), "fused_rms_norm_quant", is_centered=False),
    "fused_layer_norm": Norm(_fused_norm("fused_layer_norm"), "fused_bias_residual_layernorm", trains=False),
}

EPSILON = {"2^-17": 2.0**-17, "2^-10": 2.0**-10}
"""Exact in single precision: Paddle stores it so, for float64 too."""


def norms(types: Sequence[str]) -> Grid:
    """The grid of normalizations. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "norm": tuple(NORMS),
        "dtype": types,
        "layout": LAYOUTS,
        "shape": ((6, 5), (5,), (3, 4, 5), (0, 2, 4), (4, 1), (33, 127), (2, 1025), (1025, 8), (2, 33, 31)),
        "values": VALUES,
        "parameters": {"both": (True, True), "weight": (True, False), "bias": (False, True), "neither": (False, False)},
        "frozen": {"nothing": (), "input": (0,), "weight": (1,), "bias": (2,), "weight and bias": (1, 2)},
        "epsilon": EPSILON,
        "saved": SAVED,
    }
    rules: Rules = {
        **{reason: rule for reason, rule in OF_LAYOUTS.items() if "without axes" not in reason},
        "layer_norm has an axis that it does not normalize": lambda norm, shape: (
            NORMS[norm].is_centered and len(shape) <= NORMS[norm].axes
        ),
        "RMS norm has a weight, or none": lambda norm, parameters: parameters[1] and not NORMS[norm].is_centered,
        "a fused norm has rows and a weight": lambda norm, shape, parameters: (
            norm.startswith("fused") and (len(shape) < 2 or not parameters[0])
        ),
        "only what is there can be frozen": lambda parameters, frozen: (
            (1 in frozen and not parameters[0]) or (2 in frozen and not parameters[1])
        ),
        "something wants a gradient": lambda parameters, frozen: 0 in frozen and not any(parameters),
        "the device has no kernel for this type": lambda norm, dtype: bool(lacked(NORMS[norm].kernel, dtype)),
    }
    return Grid(axes, rules, {"shape": ["(0, 2, 4)"]}, each="norm")


def _measure_norm(case: Case) -> Compared:
    norm, rng = NORMS[case.norm], case.rng()
    axes, size = tuple(range(-norm.axes, 0)), math.prod(case.shape[-norm.axes :])
    present = [0, *(place for place, is_there in enumerate(case.parameters, 1) if is_there)]
    parameters = [paddle.to_tensor(rng.uniform(0.5, 2, size)).astype(case.dtype) for _ in present[1:]]
    given = [case.layout(case.values(rng, case.shape), case.dtype), *parameters]

    def call(*tensors: Any) -> Any:
        by_place = dict(zip(present, tensors, strict=True))
        return norm.call(by_place[0], by_place.get(1), by_place.get(2), case.epsilon)

    def parts(x: np.ndarray, *others: np.ndarray) -> tuple[np.ndarray, ...]:
        """The normal numbers, their spread, how uncertain they are, the weight, the bias."""
        by_place = dict(zip(present[1:], others, strict=True))
        normal, spread, mean = normalized(x, axes, case.epsilon, norm.is_centered)
        uncertain = 4 * (1 + (np.abs(x) + np.abs(mean)) / spread) * long_sum(size)
        weight, bias = (by_place.get(place, np.full(size, number)) for place, number in ((1, 1.0), (2, 0.0)))
        of_row = x.shape[x.ndim - norm.axes :]
        return normal, spread, uncertain, weight.reshape(of_row), bias.reshape(of_row)

    def value(x: np.ndarray, *others: np.ndarray) -> Right:
        normal, _, uncertain, weight, bias = parts(x, *others)
        return normal * weight + bias, uncertain * np.abs(weight) + np.abs(normal * weight) + np.abs(bias)

    def slopes(upstream: np.ndarray, x: np.ndarray, *others: np.ndarray) -> list[Right]:
        normal, spread, uncertain, weight, _ = parts(x, *others)
        inner = upstream * weight
        around = (np.abs(inner) + np.abs(inner).mean(axis=axes, keepdims=True) * (1 + np.abs(normal)) * 2) / spread
        slope = slope_of_normalized(normal, spread, inner, axes, norm.is_centered)
        found = [(slope, around * uncertain * (1 + np.abs(normal)))]
        of_all = {1: (upstream * normal, np.abs(upstream) * (uncertain + np.abs(normal))), 2: (upstream, np.abs(upstream))}
        for place in present[1:]:
            slope, terms = (each.reshape(-1, size).sum(axis=0) for each in of_all[place])
            found.append((slope, terms * long_sum(x.size // size)))
        return found

    trains = norm.trains and not lacked(norm.kernel, case.dtype, "gradient")
    frozen = [number for number, place in enumerate(present) if place in case.frozen]
    saved = case.saved if trains else SAVED["kept"]
    return computed(rng, case.dtype, call, given, value, slopes if trains else None, frozen, saved=saved)


RUN_NORMS = one_by_one(_measure_norm), add_row_of(lambda case: [(NORMS[case.norm].kernel, case.dtype, "")])
"""What check.grid takes as run and add_row."""

# ---------------------------------------------------------------------------------------------------------- cross entropy


@dataclass(frozen=True)
class Labels:
    """A kind of labels. dtype: of their numbers. has_axis: whether they have an axis of one element in place of the classes.

    is_soft: whether they are chances of all classes. smoothing: the argument label_smoothing, shared by all classes.
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
    "smoothed": Labels(smoothing=0.25),
    "soft, smoothed": Labels(is_soft=True, smoothing=0.25),
}

IGNORED = {"-100": -100, "0": 0, "the padding": 1, "the last class": -1, "below all": -7}
"""By name the value of ignore_index; -1 stands for the last class, and for itself where that is the padding."""


def losses(types: Sequence[str]) -> Grid:
    """The grid of cross entropies. types: the floating types that the device has.

    Formula: of each row the sum of -target * log_softmax, times the row's weight; ignored rows count neither in sum nor mean.
    """
    layouts = ("contiguous", "transposed", "sliced with an offset", "strided", "broadcast")
    axes: dict[str, Any] = {
        "target": LABELS,
        "dtype": types,
        "layout": {name: LAYOUTS[name] for name in layouts},
        "rows": ((6,), (1,), (), (2, 3), (0,), (33,), (2, 1025)),
        "classes": (7, 1, 129, 1025),
        "values": chosen("normal", "a large mean", "ties", "far apart"),
        "ignored": IGNORED,
        "share": {"none": 0.0, "some": 0.3, "all": 1.0},
        "weights": (False, True),
        "reduction": ("mean", "sum", "none"),
        "axis": {"last": -1, "first": 0},
    }
    rules: Rules = {
        "one row cannot be transposed": lambda rows, layout: not rows and layout is LAYOUTS["transposed"],
        "an empty tensor has no row to repeat": lambda rows, layout: 0 in rows and layout is LAYOUTS["broadcast"],
        "the classes of one row have one axis": lambda rows, axis: not rows and axis == 0,
        "soft labels ignore nothing": lambda target, share: (target.is_soft or target.smoothing > 0) and share > 0,
        "soft labels know no ignored class": lambda target, ignored: target.is_soft and ignored != -100,
        "the mean of no row is no number": lambda rows, reduction: 0 in rows and reduction == "mean",
        "many rows have few classes": lambda rows, classes: len(rows) == 2 and classes > 129,
        "an ignored class is one of several": lambda classes, ignored: classes < 3 and ignored not in (-100, -7),
    }
    return Grid(axes, rules, {"rows": ["(0,)"]})


def _measure_loss(case: Case) -> Compared:
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
    equal_share = float(np.float32(labels.smoothing) / np.float32(classes))  # as Paddle computes it
    target = target * (1 - labels.smoothing) + equal_share * ~is_ignored[..., None]
    if labels.smoothing and not labels.is_soft:
        target = target.astype("float32").astype("float64")  # Paddle makes chances of numbers in single precision
    weights = np.round(rng.uniform(0.5, 2, classes) * 8) / 8 if case.weights else np.ones(classes)
    of_row = (target * weights).sum(axis=-1) if case.weights else 1.0 * ~is_ignored
    given_weights = paddle.to_tensor(weights).astype(case.dtype) if case.weights else None

    def call(x: Any) -> Any:
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

    counted = of_row.sum() if case.weights else is_ignored.size - is_ignored.sum()
    divisor = (counted or 1.0) if case.reduction == "mean" else 1.0
    has_axis = labels.has_axis or labels.is_soft or labels.smoothing > 0
    shape_of_loss = np.expand_dims(numbers, case.axis).shape if has_axis else case.rows
    longer = long_sum(max(1, numbers.size))

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Of logits whose last axis are the classes: logarithms, chances, how uncertain both are."""
        top, logarithms = x.max(axis=-1, keepdims=True), log_softmax(x)
        return logarithms, np.exp(logarithms), 4 + np.abs(top) + np.abs(x), 4 + 4 * (top - x)

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

    return computed(rng, case.dtype, call, [logits], value, slopes, composed=True)  # labels, weights and reduction: operators


RUN_LOSSES = (
    one_by_one(_measure_loss),
    add_row_of(
        lambda case: [
            (kernel, case.dtype, "")
            for kernel in ("cross_entropy_with_softmax", *(["label_smooth"] if case.target.smoothing else []))
        ]
    ),
)
"""What check.grid takes as run and add_row."""

# -------------------------------------------------------------------------------------------------------------- attention

_BARRED = -1e4
"""What a mask of numbers adds to scores that a query must not see; its exponential is 0 in every type."""

_LEFT = 1e-12
"""By how much the chance of a key is uncertain, before the factor for rounding: the CPU's softmax leaves exp(-64)."""


@dataclass(frozen=True)
class Way:
    """A way to call attention.

    call: of query, key, value and the mask. mask: "", "numbers" or "bool". is_causal: whether a query sees no later key.
    kernel: Paddle's name of it.
    """

    call: Callable[..., Any]
    mask: str = ""
    is_causal: bool = False
    kernel: str = "flash_attn"


def _by_hand(softmax_of: Callable[[Any, Any], Any], query: Any, key: Any, value: Any, mask: Any) -> Any:
    """As PaddleNLP's layers without a fused kernel: heads before positions. softmax_of: of scores and the mask."""
    heads_first = [each.transpose([0, 2, 1, 3]) for each in (query, key, value)]
    scores = paddle.matmul(heads_first[0] / query.shape[-1] ** 0.5, heads_first[1].transpose([0, 1, 3, 2]))
    return paddle.matmul(softmax_of(scores, mask).astype(query.dtype), heads_first[2]).transpose([0, 2, 1, 3])


def _softmax_of_masked(scores: Any, mask: Any) -> Any:
    """In float32 or better."""
    wide = scores + mask
    return F.softmax(wide if wide.dtype == paddle.float64 else wide.astype("float32"), axis=-1)


WAYS = {
    "a mask of numbers": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "numbers"),
    "a mask of bool": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "bool"),
    "causal": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, is_causal=True), is_causal=True),
    "every key": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v)),
    "flash, causal": Way(lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v, causal=True)[0], is_causal=True),
    "flash, every key": Way(lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v)[0]),
    "by hand": Way(partial(_by_hand, _softmax_of_masked), "numbers", kernel="matmul"),
    "by hand, softmax_mask_fuse_upper_triangle": Way(
        partial(_by_hand, lambda scores, mask: softmax_mask_fuse_upper_triangle(scores)),
        is_causal=True,
        kernel="fused_softmax_mask_upper_triangle",
    ),
}

PADDINGS: Mapping[str, Callable[[int], Any]] = {
    "none": lambda keys: np.ones(keys, bool),
    "left": lambda keys: np.arange(keys) >= keys // 3,
    "right": lambda keys: np.arange(keys) < max(1, keys - keys // 3),
}
"""By name which of so many keys are no padding, of the last row of the batch."""


def attention(types: Sequence[str]) -> Grid:
    """The grid of attention: the ways in which PaddleNLP calls it. types: the floating types that the device has."""
    lengths = {"5 x 5": (5, 5), "1 x 1": (1, 1), "one query": (1, 7), "more keys": (5, 9), "around 32": (33, 31)}
    axes: dict[str, Any] = {
        "way": WAYS,
        "dtype": types,
        "layout": {name: LAYOUTS[name] for name in ("contiguous", "transposed", "sliced with an offset", "strided")},
        "batch": (2, 1, 1025),
        "lengths": {**lengths, "65 x 65": (65, 65)},
        "heads": {"4 of 4": (4, 4), "4 of 2": (4, 2), "4 of 1": (4, 1), "one": (1, 1)},
        "size": (16, 1, 64, 80, 128),
        "values": chosen("normal", "near zero", "ties", "negative"),
        "padding": PADDINGS,
        "frozen": {"nothing": (), "query": (0,), "key": (1,), "value": (2,), "key and value": (1, 2)},
        "saved": SAVED,
    }
    rules: Rules = {
        "causal attention is square here": lambda way, lengths: way.is_causal and lengths[0] != lengths[1],
        "only a mask knows of padding": lambda way, padding: not way.mask and padding is not PADDINGS["none"],
        "a large batch has short rows": lambda batch, lengths, size: batch > 2 and (lengths[1] > 9 or size > 16),
        "softmax_mask_fuse_upper_triangle needs a kernel": lambda way, dtype: (
            way.kernel.startswith("fused") and bool(lacked(way.kernel, dtype))
        ),
    }
    return Grid(axes, rules)


def _measure_attention(kept: Kept, case: Case) -> Compared:
    rng, way, (queries, keys), (heads, key_heads) = case.rng(), case.way, case.lengths, case.heads
    of_query, of_key = (case.batch, queries, heads, case.size), (case.batch, keys, key_heads, case.size)
    given = [case.layout(case.values(rng, shape), case.dtype) for shape in (of_query, of_key, of_key)]
    allowed = np.ones((case.batch, 1, queries, keys), bool)
    if way.is_causal or way.mask:
        allowed &= np.tril(np.ones((queries, keys), bool), keys - queries)
    allowed[-1] &= case.padding(keys)
    allowed[..., 0] |= ~allowed.any(axis=-1)  # a query that sees nothing has no right value
    mask = None
    if way.mask == "bool":
        mask = paddle.to_tensor(allowed)
    elif way.mask:
        mask = paddle.to_tensor(np.where(allowed, 0.0, _BARRED)).astype(case.dtype)
    share, scale = heads // key_heads, case.size**-0.5
    left = _LEFT + LEAST.get(case.dtype, 0.0) * 2.0 ** BITS[case.dtype]  # times the last bit: the least chance

    def call(query: Any, key: Any, value: Any) -> Any:
        if share > 1:  # as PaddleNLP does
            key, value = (paddle.repeat_interleave(each, share, axis=2) for each in (key, value))
        return way.call(query, key, value, mask)

    def parts(query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chances of the keys, [batch, heads, queries, keys], and how uncertain they are."""
        every = np.repeat(key, share, axis=2)
        scores, sizes = (_products(*pair) * scale for pair in ((query, every), (np.abs(query), np.abs(every))))
        chances = softmax(np.where(allowed, scores, -np.inf))
        share_of_error = (4 + sizes.max(axis=-1, keepdims=True)) * long_sum(case.size) * long_sum(keys)
        return chances, share_of_error * chances + left

    def value_of(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Right:
        chances, uncertain = parts(query, key)
        every = np.repeat(value, share, axis=2)
        return _mixed(chances, every), _mixed(uncertain, np.abs(every))

    def slopes(weight: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> list[Right]:
        chances, uncertain = parts(query, key)
        every, values = np.repeat(key, share, axis=2), np.repeat(value, share, axis=2)
        of_chances, sizes = (_products(*pair) for pair in ((weight, values), (np.abs(weight), np.abs(values))))
        of_scores = slope_of_softmax(chances, of_chances) * scale
        around = uncertain * (sizes + (sizes * chances).sum(axis=-1, keepdims=True)) * scale

        def of_key_heads(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return _mixed(shares.swapaxes(2, 3), rows).reshape(*key.shape[:3], share, key.shape[3]).sum(axis=3)

        return [
            (_mixed(of_scores, every), _mixed(around, np.abs(every))),
            (of_key_heads(of_scores, query), of_key_heads(around, np.abs(query)) * long_sum(queries * share)),
            (of_key_heads(chances, weight), of_key_heads(uncertain, np.abs(weight)) * long_sum(queries * share)),
        ]

    bits = kept.get(case.dtype)
    return computed(rng, case.dtype, call, given, value_of, slopes, case.frozen, bits, composed=True, saved=case.saved)


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of every query with every key: from [batch, positions, heads, size] to [batch, heads, queries, keys]."""
    return np.asarray(left.transpose(0, 2, 1, 3) @ right.transpose(0, 2, 3, 1))


def _mixed(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of rows [batch, keys, heads, size] with these shares [batch, heads, queries, keys]."""
    return np.asarray((shares @ rows.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))


def run_attention(kept: Kept) -> tuple[Any, Any]:
    """What check.grid takes as run and add_row."""

    def used(case: Case) -> list[tuple[str, str, str]]:
        return [(case.way.kernel, case.dtype, form) for form in ("", *(["causal"] if case.way.is_causal else []))]

    return one_by_one(partial(_measure_attention, kept)), add_row_of(used)


# ------------------------------------------------------------------------------------------------------- rotary positions

_CACHED, _FACTOR, _ORIGINAL = 64, 4.0, 32
"""For how many positions tables are made before a longer sequence comes; by which factor some stretch positions; and the length
that Llama 3's table was trained for."""


@dataclass(frozen=True)
class Rotation:
    """A table and a rotation.

    table: PaddleNLP's layer, of the size of a head, how many positions and the base. frequencies: by how much a position turns
    each pair of elements, in double precision, of the size, the base and the length. module: the one with apply_rotary_pos_emb.
    """

    table: Callable[[int, int, float], Any]
    frequencies: Callable[[int, float, int], np.ndarray]
    module: Any = llama


def _plain(size: int, base: float, length: int = 0) -> np.ndarray:
    """For each pair of elements by how much one position turns it, in radians; [size / 2]."""
    return np.asarray(base ** (-np.arange(0, size, 2) / size))


def _stretched(factor: float) -> Callable[[int, float, int], np.ndarray]:
    return lambda size, base, length: _plain(size, base * factor ** (size / (size - 2)))


def _llama3(size: int, base: float, length: int) -> np.ndarray:
    """Fast frequencies stay, slow ones are divided by the factor, and between 1 and 4 turns both are mixed."""
    plain = _plain(size, base)
    share = np.clip((_ORIGINAL * plain / (2 * math.pi) - 1) / (4 - 1), 0, 1)
    return share * plain + (1 - share) * plain / _FACTOR


ROTATIONS = {
    "Llama": Rotation(llama.LlamaRotaryEmbedding, _plain),
    "Llama, linear": Rotation(
        lambda size, count, base: llama.LlamaLinearScalingRotaryEmbedding(size, count, base, _FACTOR),
        lambda size, base, length: _plain(size, base) / _FACTOR,
    ),
    "Llama, NTK": Rotation(
        lambda size, count, base: llama.LlamaNTKScalingRotaryEmbedding(size, count, base, _FACTOR), _stretched(_FACTOR)
    ),
    "Llama, dynamic NTK": Rotation(
        lambda size, count, base: llama.LlamaDynamicNTKScalingRotaryEmbedding(size, _CACHED, base, _FACTOR),
        lambda size, base, length: _stretched(max(1.0, _FACTOR * length / _CACHED - (_FACTOR - 1)))(size, base, length),
    ),
    "Llama 3": Rotation(
        lambda size, count, base: llama.Llama3RotaryEmbedding(
            size, count, base, _FACTOR, original_max_position_embeddings=_ORIGINAL
        ),
        _llama3,
    ),
    "Qwen2": Rotation(lambda size, count, base: qwen2.Qwen2RotaryEmbedding(size, _CACHED, base), _plain, qwen2),
    "Qwen2-MoE": Rotation(lambda size, count, base: qwen2_moe.Qwen2MoeRotaryEmbedding(size, _CACHED, base), _plain, qwen2_moe),
}

_FUSED = "fused_rotary_position_embedding"


def _fused(query: Any, key: Any, cosine: Any, sine: Any, positions: Any) -> Any:
    """As PaddleNLP's fusion_ops calls it."""
    turned = fused.fused_rotary_position_embedding(
        query, key, None, sin=sine, cos=cosine, position_ids=positions, use_neox_rotary_style=False
    )
    return turned[:2]


POSITIONS: dict[str, Callable[[int], Any]] = {
    "from 0": lambda length: np.tile(np.arange(length), (2, 1)),
    "not given": lambda length: None,
    "after a cache": lambda length: np.tile(np.arange(length) + 5, (2, 1)),
    "padded on the left": lambda length: np.maximum(np.arange(length) - np.array([[0], [length // 2]]), 0),
    "packed": lambda length: np.tile(np.arange(length) % max(1, length // 2), (2, 1)),
    "far": lambda length: np.tile(np.arange(length) + 4000, (2, 1)),
}
"""By name the positions [2, length] of two rows."""


def rotary(types: Sequence[str]) -> Grid:
    """The grid of rotary positions, on the device in use. types: the floating types that the device has.

    PaddleNLP computes angles in float32, whatever the type of the model: an angle of 4,000 is known to 2e-4. So the bound of an
    element grows with its angle.
    """
    axes: dict[str, Any] = {
        "way": {"apply_rotary_pos_emb": False, "fused": True},
        "rotation": tuple(ROTATIONS),
        "dtype": types,
        "layout": LAYOUTS,
        "length": (17, 1, 33, 130),
        "positions": POSITIONS,
        "heads": {"4 of 4": (4, 4), "4 of 2": (4, 2), "3 of 1": (3, 1), "3 of none": (3, 0)},
        "size": (64, 6, 2, 128),
        "base": (10000.0, 1e6),
        "values": chosen("normal", "near zero", "a large mean", "negative"),
        "frozen": {"nothing": (), "query": (0,), "key": (1,)},
    }
    rules: Rules = {
        "the device has no kernel for fused rotary positions": lambda way, dtype: way and bool(lacked(_FUSED, dtype)),
        "NTK divides by the size less 2": lambda rotation, size: "NTK" in rotation and size == 2,
        "only the fused kernel is called without keys": lambda way, heads, layout: (
            0 in heads and (not way or layout is not LAYOUTS["contiguous"])
        ),
    }
    return Grid(axes, rules)


def _measure_rotary(case: Case) -> Compared:
    rng, rotation, positions = case.rng(), ROTATIONS[case.rotation], case.positions(case.length)
    given = [case.layout(case.values(rng, (2, case.length, heads, case.size)), case.dtype) for heads in case.heads]
    at = np.tile(np.arange(case.length), (2, 1)) if positions is None else positions
    count = int(at.max()) + 1
    table = rotation.table(case.size, count, case.base)
    cosine, sine = table(given[0], seq_len=count)
    ids = None if positions is None else paddle.to_tensor(positions)
    rotate = _fused if case.way else rotation.module.apply_rotary_pos_emb
    angles = (at[..., None] * np.tile(rotation.frequencies(case.size, case.base, count), 2))[:, :, None, :]
    counted = 2.0 ** (3 - (BITS["float64"] if case.dtype == "float64" else BITS["float32"]))  # by bounds.bound, for each term
    unit = (2.0 ** -BITS[case.dtype] + 2.0 ** (1 - BITS["float32"]) * (1 + angles)) / counted

    def call(query: Any, key: Any) -> Any:
        return paddle.concat(rotate(query, key, cosine, sine, ids), axis=2)

    def turned(heads: np.ndarray, direction: int) -> Right:
        both = np.abs(heads) + np.abs(np.roll(heads, case.size // 2, axis=-1))
        return rotated(heads, np.cos(angles), direction * np.sin(angles)), both * unit

    def value(query: np.ndarray, key: np.ndarray) -> Right:
        return turned(np.concatenate([query, key], axis=2), 1)

    def slopes(weight: np.ndarray, query: np.ndarray, key: np.ndarray) -> list[Right]:
        return [turned(part, -1) for part in np.split(weight, [case.heads[0]], axis=2)]

    return computed(rng, case.dtype, call, given, value, slopes, case.frozen)


RUN_ROTARY = one_by_one(_measure_rotary), add_row_of(lambda case: [(_FUSED if case.way else "multiply", case.dtype, "")])
"""What check.grid takes as run and add_row."""

# ---------------------------------------------------------------------------------------------------------------- dropout

_UPSCALE, _DOWNSCALE = "upscale_in_train", "downscale_in_infer"
_STRAY, _ALWAYS, _OFTEN = 6.0, 2.0, 30
"""By how many standard deviations, and by how many elements besides, the number of those that are kept may differ from p; and
how many kept and dropped elements make two equal masks as good as impossible."""


def _layer(x: Any, case: Case) -> Any:
    layer = paddle.nn.Dropout(case.p, axis=case.axis, mode=case.mode)
    layer.training = case.training
    return layer(x)


CALLS: dict[str, Callable[[Any, Case], Any]] = {
    "F.dropout": lambda x, case: F.dropout(x, case.p, axis=case.axis, training=case.training, mode=case.mode),
    "nn.Dropout": _layer,
}


def dropout(types: Sequence[str]) -> Grid:
    """The grid of dropout. types: the floating types that the device has.

    No element of the input is 0, so the zeros of the result are what was dropped: what is kept must have the right value, as
    often as p says, and the gradient the mask of the forward pass.
    """
    axes: dict[str, Any] = {
        "p": (0.5, 0.0, 1.0, 0.1, 0.75),
        "dtype": types,
        "mode": (_UPSCALE, _DOWNSCALE),
        "axis": (None, 0, 1, (0, 1)),
        "training": {"training": True, "evaluation": False},
        "call": CALLS,
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": chosen("normal", "near one", "a large mean", "negative"),
    }
    rules: Rules = {
        **OF_LAYOUTS,
        "the tensor needs the axis": lambda shape, axis: axis is not None and len(shape) <= np.max(axis),
    }
    return Grid(axes, rules, EMPTY)


def _measure_dropout(case: Case) -> Compared:
    """The result, its gradient, the mask, the same again, and what is counted."""
    rng, p = case.rng(), case.p
    drawn = case.values(rng, case.shape)
    tensor = case.layout(drawn + np.copysign(0.25, drawn), case.dtype).detach()
    tensor.stop_gradient = False
    x = tensor.astype("float64").numpy()
    paddle.seed(case.seed)
    result, following = (CALLS[case.labels["call"]](tensor, case) for _ in range(2))
    paddle.seed(case.seed)
    again = CALLS[case.labels["call"]](tensor, case)
    weight = paddle.to_tensor(rng.uniform(0.5, 1.5, case.shape)).astype(case.dtype)
    (slope,) = paddle.grad([result], [tensor], [weight])
    found, later, same, slopes, g = (
        np.asarray(each.astype("float64").numpy()) for each in (result, following, again, slope, weight)
    )

    kept, scale = found != 0, 1 / (1 - p) if case.mode == _UPSCALE and p < 1 else 1.0
    if not case.training:
        kept, scale = np.ones(case.shape, bool), 1 - p if case.mode == _DOWNSCALE else 1.0
    mask, once = _mask(case, kept)
    counts = _counts(case, once, found, later)
    exact = [kept * scale * x, kept * scale * g, mask * 1.0, found, np.array([each for _, each in counts])]
    terms = [np.abs(exact[0]), np.abs(exact[1]), *(0 * each for each in exact[2:])]
    arrays = [found, slopes, kept * 1.0, same, np.array([each for each, _ in counts])]
    return within_bounds(arrays, list(zip(exact, terms, strict=True)), case.dtype)


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
    beyond = max(0.0, abs(drawn.sum() - expected) - _STRAY * deviation - _ALWAYS * (0 < case.p < 1))
    counts = [(beyond, 0.0)]
    if drawn.size * min(case.p, 1 - case.p) >= _OFTEN:
        counts.append((float((found != later).any()), 1.0))
    return counts


RUN_DROPOUT = one_by_one(_measure_dropout), add_row_of(lambda case: [("dropout", case.dtype, "")])
"""What check.grid takes as run and add_row."""
