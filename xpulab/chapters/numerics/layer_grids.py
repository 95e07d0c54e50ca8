"""The operators of a model's layers on grids: products, norms, cross entropy, attention, rotary positions and dropout.

    check.grid("numerics.products", products(claimed), *run_products(kept, parts), level=level, seed=seed, means=...)

Fused operators stand in the grid of what they compute.
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
from paddlenlp.transformers.llama import modeling as llama
from paddlenlp.transformers.qwen2 import modeling as qwen2

from xpulab.chapters.numerics.operator_grids import VALUES, chosen
from xpulab.chapters.shared import interesting
from xpulab.chapters.shared.missing_kernels import add_row_of, lacked
from xpulab.chapters.shared.operator_tester import EMPTY, LAYOUTS, OF_LAYOUTS, SHAPES, Right, Rules, Shape, compared, computed
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one
from xpulab.reference.bounds import BITS, HALVES, LEAST, long_sum
from xpulab.reference.operators import log_softmax, normalized, rotated, slope_of_normalized, slope_of_softmax, softmax, summed

Kept = Mapping[str, int]

# --------------------------------------------------------------------------------------------------------------- products


@dataclass(frozen=True)
class Product:
    """A product of two tensors, and a bias that may be added to it.

    call: Paddle's, of both and of the bias. form: the indices of left, right and result as einsum has them; "..." stands for
    the axes of a batch. m and n are rows and columns, k is summed; b is 2. kernel: Paddle's name of it.
    """

    call: Callable[..., Any]
    form: str
    kernel: str = "matmul"
    has_bias: bool = False

    @property
    def indices(self) -> tuple[str, str, str]:
        """Of left, right and result."""
        left, _, rest = self.form.partition(",")
        return left, *rest.split("->")  # type: ignore[return-value]


def _matmul(form: str, **transposed: bool) -> Product:
    return Product(lambda x, y: paddle.matmul(x, y, **transposed), form)


def _einsum(form: str, letters: str) -> Product:
    """As PaddleNLP's gates and layers of experts call it. letters: the same form in those of this module."""
    return Product(lambda x, y: paddle.einsum(form, x, y), letters, "einsum")


_LAYER = "...mk,kn->...mn"

PRODUCTS = {
    "matmul": _matmul("...mk,...kn->...mn"),
    "matmul, transpose_x": _matmul("...km,...kn->...mn", transpose_x=True),
    "matmul, transpose_y": _matmul("...mk,...nk->...mn", transpose_y=True),
    "matmul, transpose both": _matmul("...km,...nk->...mn", transpose_x=True, transpose_y=True),
    "mm": Product(lambda x, y: paddle.mm(x, y), "mk,kn->mn"),
    "bmm": Product(lambda x, y: paddle.bmm(x, y), "bmk,bkn->bmn", "bmm"),
    "linear": Product(lambda x, y: F.linear(x, y), _LAYER),
    "linear with a bias": Product(lambda x, y, bias: F.linear(x, y, bias), _LAYER, has_bias=True),
    "addmm": Product(
        lambda x, y, bias: paddle.addmm(2 * bias, x, 4 * y, beta=0.5, alpha=0.25), "mk,kn->mn", "addmm", has_bias=True
    ),
    "fused_linear": Product(lambda x, y, bias: fused.fused_linear(x, y, bias), _LAYER, "fused_gemm_epilogue", has_bias=True),
    "dot": Product(lambda x, y: paddle.dot(x, y), "bk,bk->b", "dot"),
    "outer": Product(lambda x, y: paddle.outer(x, y), "m,n->mn", "multiply"),
    "einsum s,se->se": _einsum("s,se->se", "k,kn->kn"),
    "einsum se,sc->sec": _einsum("se,sc->sec", "mk,mn->mkn"),
    "einsum sec,sm->ecm": _einsum("sec,sm->ecm", "kmb,kn->mbn"),
    "einsum sec,ecm->sm": _einsum("sec,ecm->sm", "mbk,bkn->mn"),
}
"""Products that Paddle's layers, PaddleNLP's models and this book call."""

SIZES = {
    "4 x 5 x 6": (4, 5, 6),
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
}
"""By name the axes of the batch left and right."""


def products(types: Sequence[str]) -> Grid:
    """The grid of products. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "product": tuple(PRODUCTS),
        "dtype": types,
        "layout": LAYOUTS,
        "other": LAYOUTS,
        "sizes": SIZES,
        "batch": BATCHES,
        "values": VALUES,
        "frozen": {"nothing": (), "left": (0,), "right": (1,)},
    }
    rules: Rules = {
        "this product has no batch there": lambda product, batch: any(
            axes and "..." not in indices for axes, indices in zip(batch, PRODUCTS[product].indices, strict=False)
        ),
        "the device has no kernel for this type": lambda product, dtype: bool(lacked(PRODUCTS[product].kernel, dtype)),
        "Paddle 3.3.1 ends the process in the gradient of addmm where a factor without elements is frozen": (
            lambda product, sizes, frozen: product == "addmm" and 0 in sizes and bool(frozen)
        ),
        "Paddle 3.3.1 leaves the result of bmm unset where nothing is summed": lambda product, sizes: (
            product == "bmm" and not sizes[1]
        ),
    }
    grid = Grid(axes, rules, {"sizes": ["no row", "nothing summed"]})
    layouts = interesting.LAYOUTS
    return grid.with_further(
        {"layout": layouts, "other": layouts, "sizes": interesting.SIZES, "values": interesting.VALUES}, {}
    )


def _factors(product: Product, sizes: Shape, batch: Any) -> list[Shape]:
    """The shapes of both factors."""
    of_index = dict(zip("mkn", sizes, strict=True)) | {"b": 2}
    return [
        (*axes, *(of_index[index] for index in indices.removeprefix("...")))
        for indices, axes in zip(product.indices, batch, strict=False)
    ]


def _measure_product(kept: Kept, parts: Kept, case: Case) -> Compared:
    product, rng = PRODUCTS[case.product], case.rng()
    left, right = _factors(product, case.sizes, case.batch)
    of_left, of_right, of_result = product.indices
    given = [case.layout.tensor(case.values(rng, left), case.dtype), case.other.tensor(case.values(rng, right), case.dtype)]
    if product.has_bias:
        given.append(paddle.to_tensor(rng.standard_normal(case.sizes[2])).astype(case.dtype))

    def value(x: np.ndarray, y: np.ndarray, bias: Any = 0.0) -> Right:
        exact, terms = (np.einsum(product.form, *pair) for pair in ((x, y), (np.abs(x), np.abs(y))))
        return exact + bias, terms * long_sum(x.size * y.size // max(1, exact.size)) + np.abs(bias)

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, *bias: np.ndarray) -> list[Right]:
        found = [_slope(weight, of_result, y, of_right, x, of_left), _slope(weight, of_result, x, of_left, y, of_right)]
        for each in bias:
            found.append((summed(weight, each), summed(np.abs(weight), each) * long_sum(weight.size // max(1, each.size))))
        return found

    bits, composed = kept.get(case.dtype), product.has_bias or case.dtype in parts
    return computed(rng, case.dtype, product.call, given, value, slopes, case.frozen, bits, composed)


def _slope(weight: np.ndarray, indices: str, factor: np.ndarray, of_factor: str, of: np.ndarray, of_wanted: str) -> Right:
    """The gradient of one factor: the weight of the result times the other factor, summed to the shape of the one."""
    wanted = of_wanted if "..." in of_wanted or "..." not in indices + of_factor else f"...{of_wanted}"
    slope, terms = (
        summed(np.einsum(f"{indices},{of_factor}->{wanted}", *pair), of)
        for pair in ((weight, factor), (np.abs(weight), np.abs(factor)))
    )
    return slope, terms * long_sum(weight.size * factor.size // max(1, of.size))


def run_products(kept: Kept, parts: Kept) -> tuple[Any, Any]:
    """What check.grid takes as run and add_row. parts: of accumulators; a product in parts rounds as a composed operator."""
    return one_by_one(partial(_measure_product, kept, parts)), add_row_of(
        lambda case: [(PRODUCTS[case.product].kernel, case.dtype, "")]
    )


# ------------------------------------------------------------------------------------------------------------------ norms


@dataclass(frozen=True)
class Norm:
    """A normalization over the last axis.

    call: Paddle's, of the input, weight and bias or None, and epsilon. kernel: Paddle's name of it.
    is_centered: whether the mean is subtracted. is_of_squares: whether the variance is the mean of squares minus that of the
    mean, and so uncertain by both.
    """

    call: Callable[..., Any]
    kernel: str
    is_centered: bool = True
    is_of_squares: bool = False


def _rms_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    """As LlamaRMSNorm and Qwen2RMSNorm of PaddleNLP compute it: in float32, but for float64 here."""
    wide = x if x.dtype == paddle.float64 else x.astype("float32")
    normal = (paddle.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon) * wide).astype(x.dtype)
    return normal if weight is None else normal * weight


def _fused_rms_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    return fused.fused_rms_norm(x, weight, paddle.zeros_like(weight), epsilon, begin_norm_axis=x.ndim - 1)[0]


def _group_norm(x: Any, weight: Any, bias: Any, epsilon: float) -> Any:
    """One row of channels, of which each group is a row of x."""
    rows = x.size // x.shape[-1]
    parameters = {name: each.tile([rows]) for name, each in (("weight", weight), ("bias", bias)) if each is not None}
    return F.group_norm(x.reshape([1, -1]), rows, epsilon, **parameters).reshape(x.shape)


NORMS = {
    "layer_norm": Norm(lambda x, weight, bias, epsilon: F.layer_norm(x, x.shape[-1:], weight, bias, epsilon), "layer_norm"),
    "group_norm, a row each": Norm(_group_norm, "group_norm", is_of_squares=True),
    "RMS norm": Norm(_rms_norm, "rsqrt", is_centered=False),
    "fused_rms_norm": Norm(_fused_rms_norm, "fused_rms_norm_quant", is_centered=False),
}

EPSILON = 2.0**-17
"""Exact in single precision: Paddle stores it so, for float64 too."""


def norms(types: Sequence[str]) -> Grid:
    """The grid of normalizations. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "norm": tuple(NORMS),
        "dtype": types,
        "layout": LAYOUTS,
        "shape": [shape for shape in SHAPES if shape],
        "values": VALUES,
        "parameters": {"both": (True, True), "weight": (True, False), "neither": (False, False), "bias": (False, True)},
        "frozen": {"nothing": (), "input": (0,), "weight": (1,), "bias": (2,), "weight and bias": (1, 2)},
    }
    rules: Rules = {
        **{reason: rule for reason, rule in OF_LAYOUTS.items() if "without axes" not in reason},
        "only RMS norm takes a row alone": lambda norm, shape: norm != "RMS norm" and len(shape) < 2,
        "a row that is a group has elements": lambda norm, shape: norm.startswith("group") and 0 in shape,
        "RMS norm has a weight, or none": lambda norm, parameters: parameters[1] and not NORMS[norm].is_centered,
        "a fused norm has a weight": lambda norm, parameters: norm.startswith("fused") and not parameters[0],
        "only what is there can be frozen": lambda parameters, frozen: (
            (1 in frozen and not parameters[0]) or (2 in frozen and not parameters[1])
        ),
        "something wants a gradient": lambda parameters, frozen: 0 in frozen and not any(parameters),
        "the device has no kernel for this type": lambda norm, dtype: bool(lacked(NORMS[norm].kernel, dtype)),
    }
    further: Rules = {
        **interesting.RULES,
        "a row has elements": lambda shape: not shape[-1],
        "equal terms of a long sum are rounded alike": lambda shape, layout: layout in interesting.REPEATED
        and shape[-1] > 1025,
    }
    return Grid(axes, rules, EMPTY, each="norm").with_further(interesting.OF_NUMBERS, further)


def _measure_norm(case: Case) -> Compared:
    norm, rng, size = NORMS[case.norm], case.rng(), case.shape[-1]
    parameters = [paddle.to_tensor(rng.uniform(0.5, 2, size)).astype(case.dtype) for _ in range(sum(case.parameters))]
    given = [case.layout.tensor(case.values(rng, case.shape), case.dtype), *parameters]
    has_weight, has_bias = case.parameters

    def both(parameters: Sequence[Any], none: tuple[Any, Any]) -> tuple[Any, Any]:
        """Weight and bias, or what stands for one that is not there."""
        return parameters[0] if has_weight else none[0], parameters[-1] if has_bias else none[1]

    def call(x: Any, *parameters: Any) -> Any:
        return norm.call(x, *both(parameters, (None, None)), EPSILON)

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The normal numbers, their spread, how uncertain they are."""
        normal, spread, mean = normalized(x, (-1,), EPSILON, norm.is_centered)
        of_squares = (1 + (mean / spread) ** 2) * (1 + np.abs(normal)) if norm.is_of_squares else 1.0
        return normal, spread, 4 * (1 + (np.abs(x) + np.abs(mean)) / spread) * of_squares * long_sum(size)

    def value(x: np.ndarray, *parameters: Any) -> Right:
        (normal, _, uncertain), (weight, bias) = parts(x), both(parameters, (1.0, 0.0))
        return normal * weight + bias, uncertain * np.abs(weight) + np.abs(normal * weight) + np.abs(bias)

    def slopes(upstream: np.ndarray, x: np.ndarray, *parameters: Any) -> list[Right]:
        (normal, spread, uncertain), (weight, _) = parts(x), both(parameters, (1.0, 0.0))
        inner = upstream * weight
        around = (np.abs(inner) + np.abs(inner).mean(axis=-1, keepdims=True) * (1 + np.abs(normal)) * 2) / spread
        slope = slope_of_normalized(normal, spread, inner, (-1,), norm.is_centered)
        found: list[Right] = [(slope, around * uncertain * (1 + np.abs(normal)))]
        of_weight = upstream * normal, np.abs(upstream) * (uncertain + np.abs(normal))
        for of_each in (of_weight, (upstream, np.abs(upstream)))[not has_weight : 1 + has_bias]:
            slope, terms = (each.reshape(-1, size).sum(axis=0) for each in of_each)
            found.append((slope, terms * long_sum(x.size // size)))
        return found

    trains = not lacked(norm.kernel, case.dtype, "gradient")
    frozen = [min(place, len(parameters)) for place in case.frozen]  # a bias alone stands in the place of the weight
    return computed(rng, case.dtype, call, given, value, slopes if trains else None, frozen)


RUN_NORMS = one_by_one(_measure_norm), add_row_of(lambda case: [(NORMS[case.norm].kernel, case.dtype, "")])

# ---------------------------------------------------------------------------------------------------------- cross entropy

FORMS = (
    *("of labels", "of weighted classes", "of smoothed labels", "of soft labels", "along the first axis"),
    *("of probabilities", "nll_loss", "nll_loss of weighted classes"),
)
"""What cross entropy is of; the further arguments it has then. A weight of a class is at least 1/2; smoothed are 10 %."""

IGNORED = {"-100": -100, "0": 0, "the padding": 1, "the last class": -1, "below all": -7}
"""By name the value of ignore_index; -1 stands for the last class, and for itself where that is the padding."""


def losses(types: Sequence[str]) -> Grid:
    """The grid of cross entropies. types: the floating types that the device has.

    Formula: of each row -log_softmax at its label; ignored rows count neither in sum nor mean.
    """
    axes: dict[str, Any] = {
        "target": ("int64", "int32", "with an axis"),
        "dtype": types,
        "layout": LAYOUTS,
        "rows": ((6,), (1,), (), (2, 3), (0,), (33,), (2, 1025)),
        "classes": (7, 1, 129, 1025),
        "values": chosen("normal", "a large mean", "ties", "far apart"),
        "ignored": IGNORED,
        "share": {"none": 0.0, "some": 0.3, "all": 1.0},
        "reduction": ("mean", "sum", "none"),
        "form": FORMS,
    }
    rules: Rules = {
        "one row cannot be transposed": lambda rows, layout: not rows and layout.view is LAYOUTS["transposed"].view,
        "the mean of no row is no number": lambda rows, reduction: 0 in rows and reduction == "mean",
        "many rows have few classes": lambda rows, classes: len(rows) == 2 and classes > 129,
        "Paddle 3.3.1 refuses an ignored label beside smoothed ones, and soft labels have none": lambda form, share, ignored: (
            form in FORMS[2:4] and (share > 0 or ignored != -100)
        ),
        "labels of another type or shape are no soft ones, and stand beside the last axis": lambda form, target: (
            form not in FORMS[:2] and target != "int64"
        ),
        "the first axis is another one than the last": lambda form, rows: form == FORMS[4] and len(rows) != 1,
        "nll_loss has one axis of rows here": lambda form, rows: form in FORMS[6:] and len(rows) != 1,
        "Paddle 3.3.1 on the CPU writes beside the sum of nll_loss where a label is ignored": lambda form, share, reduction: (
            form in FORMS[6:] and share > 0 and reduction != "none"
        ),
        "a probability of a type of 16 bits may be 0": lambda form, dtype: form == FORMS[5] and dtype in HALVES,
        "an ignored class is one of several": lambda classes, ignored: classes < 3 and ignored not in (-100, -7),
    }
    return Grid(axes, rules, {"rows": ["(0,)"]}).with_further(
        {"layout": interesting.LAYOUTS, "values": interesting.VALUES, "classes": interesting.CLASSES}, {}
    )


def _measure_loss(case: Case) -> Compared:
    rng, classes = case.rng(), case.classes
    logits = case.layout.tensor(case.values(rng, (*case.rows, classes)), case.dtype)
    ignored = classes - 1 if case.ignored == -1 else case.ignored
    numbers = rng.integers(0, classes, case.rows)
    if ignored >= 0:
        numbers = np.where(numbers == ignored, (numbers + 1) % classes, numbers)
    is_ignored = rng.random(case.rows) < case.share
    target = np.eye(classes)[numbers] * ~is_ignored[..., None]
    numbers = np.where(is_ignored, ignored, numbers)
    shape = (*case.rows, 1) if case.target == "with an axis" else case.rows
    labels = paddle.to_tensor(numbers.reshape(shape).astype("int32" if case.target == "int32" else "int64"))
    more: dict[str, Any] = {}
    is_weighted = case.form in (FORMS[1], FORMS[7])
    if is_weighted:
        weights = paddle.to_tensor(rng.uniform(0.5, 2, classes)).astype(case.dtype)
        more["weight"], target = weights, target * weights.astype("float64").numpy()
    elif case.form == FORMS[2]:
        more["label_smoothing"], target, shape = 0.1, 0.9 * target + 0.1 / classes, (*case.rows, 1)
    elif case.form == FORMS[3]:
        labels = paddle.to_tensor(softmax(rng.standard_normal(target.shape))).astype(case.dtype)
        more["soft_label"], target, shape = True, labels.astype("float64").numpy(), (*case.rows, 1)
    elif case.form == FORMS[4]:
        more["axis"] = 0
    elif case.form == FORMS[5]:
        more["use_softmax"] = False
    counted = target.sum() if is_weighted else (~is_ignored).sum()
    divisor = (counted or 1.0) if case.reduction == "mean" else 1.0
    longer = long_sum(max(1, is_ignored.size))

    def value(x: np.ndarray) -> Right:
        terms = 4 + np.abs(x.max(axis=-1, keepdims=True)) + np.abs(x)
        of_rows = -(target * log_softmax(x)).sum(axis=-1)
        of_terms = (target * terms).sum(axis=-1) * long_sum(classes**2)  # equal terms are rounded alike
        if case.reduction == "none":
            return of_rows.reshape(shape), of_terms.reshape(shape)
        return of_rows.sum() / divisor, np.asarray(of_terms.sum() / divisor * longer)

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        top, chances = x.max(axis=-1, keepdims=True), softmax(x)
        uncertain = 8 + 4 * (top - x) + np.abs(top) + np.abs(x)
        each = np.expand_dims((weight.reshape(case.rows) if case.reduction == "none" else weight) / divisor * ~is_ignored, -1)
        chances = chances * target.sum(axis=-1, keepdims=True)
        around = (chances * uncertain + target) * np.abs(each) * long_sum(classes) * longer
        return [((chances - target) * each, around)]

    def call(x: Any) -> Any:
        x = x.t() if case.form == FORMS[4] else F.softmax(x, -1) if case.form == FORMS[5] else x
        if case.form in FORMS[6:]:
            return F.nll_loss(F.log_softmax(x, -1), labels, ignore_index=ignored, reduction=case.reduction, **more)
        return F.cross_entropy(x, labels, ignore_index=ignored, reduction=case.reduction, **more)

    return computed(rng, case.dtype, call, [logits], value, slopes, composed=True)  # labels and reduction: operators


RUN_LOSSES = one_by_one(_measure_loss), add_row_of(lambda case: [("cross_entropy_with_softmax", case.dtype, "")])

# -------------------------------------------------------------------------------------------------------------- attention

_BARRED = -1e4
"""What a mask of numbers adds to scores that a query must not see; its exponential is 0 in every type."""

_LEFT = 1e-12
"""By how much the chance of a key is uncertain, before the factor for rounding: the CPU's softmax leaves exp(-64)."""


@dataclass(frozen=True)
class Attention:
    """A way to call attention.

    call: of query, key, value and the mask. mask: "", "numbers" or "bool". is_causal: whether a query sees no later key.
    scale: of the scores, None for the usual one. is_grouped: whether fewer heads of keys are not repeated before.
    """

    call: Callable[..., Any]
    mask: str = ""
    is_causal: bool = False
    scale: float | None = None
    is_grouped: bool = False


WAYS = {
    "a mask of numbers": Attention(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "numbers"),
    "a mask of bool": Attention(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "bool"),
    "causal": Attention(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, is_causal=True), is_causal=True),
    "every key": Attention(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v)),
    "flash, causal": Attention(
        lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v, causal=True)[0], is_causal=True
    ),
    "scaled, heads in groups": Attention(
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True),
        "numbers",
        scale=0.3,
        is_grouped=True,
    ),
    "dropout, in evaluation": Attention(
        lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask, 0.5, training=False, enable_gqa=False), "numbers"
    ),
    "flash, every key": Attention(lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v)[0]),
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
        "layout": LAYOUTS,
        "batch": (2, 1, 1025),
        "lengths": {**lengths, "65 x 65": (65, 65)},
        "heads": {"4 of 4": (4, 4), "4 of 2": (4, 2), "4 of 1": (4, 1), "one": (1, 1)},
        "size": (16, 1, 64, 80, 128),
        "values": chosen("normal", "near zero", "ties", "negative"),
        "padding": PADDINGS,
        "frozen": {"nothing": (), "query": (0,), "key": (1,), "value": (2,), "key and value": (1, 2)},
    }
    rules: Rules = {
        "causal attention is square here": lambda way, lengths: way.is_causal and lengths[0] != lengths[1],
        "only a mask knows of padding": lambda way, padding: not way.mask and padding is not PADDINGS["none"],
        "a large batch has short rows": lambda batch, lengths, size: batch > 2 and (lengths[1] > 9 or size > 16),
    }
    further: Rules = {
        "a large batch has few keys": lambda batch, lengths: batch > 2 and lengths[0] * lengths[1] > 45,
        "positions of many columns are few": lambda size, lengths: size * lengths[0] * lengths[1] > interesting.MOST,
        "equal terms of a long sum are rounded alike": lambda size, layout: size > 80 and layout in interesting.REPEATED,
        "beside -10,000 a type of 16 bits keeps nothing of a score": lambda dtype, padding: (
            dtype in HALVES and padding is interesting.PADDINGS["every key"]
        ),
    }
    of_numbers: dict[str, Any] = {"layout": interesting.LAYOUTS, "values": interesting.VALUES}
    return Grid(axes, rules).with_further(
        {**of_numbers, "lengths": interesting.LENGTHS, "padding": interesting.PADDINGS}, further
    )


def _measure_attention(kept: Kept, case: Case) -> Compared:
    rng, way, (queries, keys), (heads, key_heads) = case.rng(), case.way, case.lengths, case.heads
    of_query, of_key = (case.batch, queries, heads, case.size), (case.batch, keys, key_heads, case.size)
    given = [case.layout.tensor(case.values(rng, shape), case.dtype) for shape in (of_query, of_key, of_key)]
    allowed = np.ones((case.batch, 1, queries, keys), bool)
    if way.is_causal or way.mask:
        allowed &= np.tril(np.ones((queries, keys), bool), keys - queries)
    allowed[-1] &= case.padding(keys)
    if way.mask == "bool":
        allowed[..., 0] |= ~allowed.any(axis=-1)  # a query that sees nothing has no right value
    barred = np.where(allowed, 0.0, _BARRED if way.mask == "numbers" else -np.inf)
    mask = None
    if way.mask == "bool":
        mask = paddle.to_tensor(allowed)
    elif way.mask:
        mask = paddle.to_tensor(barred).astype(case.dtype)
    share, scale = heads // key_heads, way.scale or case.size**-0.5
    left = _LEFT + LEAST.get(case.dtype, 0.0) * 2.0 ** BITS[case.dtype]  # times the last bit: the least chance

    def call(query: Any, key: Any, value: Any) -> Any:
        if share > 1 and not way.is_grouped:  # as PaddleNLP does
            key, value = (paddle.repeat_interleave(each, share, axis=2) for each in (key, value))
        return way.call(query, key, value, mask)

    def parts(query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chances of the keys, [batch, heads, queries, keys], and how uncertain they are."""
        every = np.repeat(key, share, axis=2)
        scores, sizes = (_products(*pair) * scale for pair in ((query, every), (np.abs(query), np.abs(every))))
        chances = softmax(scores + barred)
        sizes = sizes - _BARRED * ~allowed.any(axis=-1, keepdims=True)
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
    return computed(rng, case.dtype, call, given, value_of, slopes, case.frozen, bits, composed=True)


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of every query with every key: from [batch, positions, heads, size] to [batch, heads, queries, keys]."""
    return np.asarray(left.transpose(0, 2, 1, 3) @ right.transpose(0, 2, 3, 1))


def _mixed(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of rows [batch, keys, heads, size] with these shares [batch, heads, queries, keys]."""
    return np.asarray((shares @ rows.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))


def run_attention(kept: Kept) -> tuple[Any, Any]:
    """What check.grid takes as run and add_row."""

    def used(case: Case) -> list[tuple[str, str, str]]:
        return [("flash_attn", case.dtype, form) for form in ("", *(["causal"] if case.way.is_causal else []))]

    return one_by_one(partial(_measure_attention, kept)), add_row_of(used)


# ------------------------------------------------------------------------------------------------------- rotary positions


def _fused_rotation(query: Any, key: Any, cosine: Any, sine: Any, positions: Any) -> Any:
    """As PaddleNLP's fusion_ops calls it."""
    turned = fused.fused_rotary_position_embedding(
        query, key, None, sin=sine, cos=cosine, position_ids=positions, use_neox_rotary_style=False
    )
    return turned[:2]


ROTATIONS: dict[str, tuple[Callable[[int, int, float], Any], Callable[..., Any]]] = {
    "Llama": (llama.LlamaRotaryEmbedding, llama.apply_rotary_pos_emb),
    "Qwen2": (qwen2.Qwen2RotaryEmbedding, qwen2.apply_rotary_pos_emb),
    "fused": (llama.LlamaRotaryEmbedding, _fused_rotation),
}
"""By name PaddleNLP's table, of the size of a head, how many positions and the base; and what turns queries and keys."""

_FUSED = "fused_rotary_position_embedding"


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
        "the device has no kernel for fused rotary positions": lambda rotation, dtype: (
            rotation == "fused" and bool(lacked(_FUSED, dtype))
        ),
        "only the fused kernel is called without keys": lambda rotation, heads, layout: (
            0 in heads and (rotation != "fused" or layout is not LAYOUTS["contiguous"])
        ),
    }
    return Grid(axes, rules).with_further({"layout": interesting.LAYOUTS, "values": interesting.VALUES}, {})


def _measure_rotary(case: Case) -> Compared:
    rng, (table, rotate), positions = case.rng(), ROTATIONS[case.rotation], case.positions(case.length)
    given = [case.layout.tensor(case.values(rng, (2, case.length, heads, case.size)), case.dtype) for heads in case.heads]
    at = np.tile(np.arange(case.length), (2, 1)) if positions is None else positions
    count = int(at.max()) + 1
    cosine, sine = table(case.size, count, case.base)(given[0], seq_len=count)
    ids = None if positions is None else paddle.to_tensor(positions)
    of_each_pair = case.base ** (-np.arange(0, case.size, 2) / case.size)  # by how much one position turns it, in radians
    angles = (at[..., None] * np.tile(of_each_pair, 2))[:, :, None, :]
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


RUN_ROTARY = (
    one_by_one(_measure_rotary),
    add_row_of(lambda case: [(_FUSED if case.rotation == "fused" else "multiply", case.dtype, "")]),
)

# ---------------------------------------------------------------------------------------------------------------- dropout

_STRAY, _ALWAYS = 6.0, 2.0
"""By how many standard deviations, and by how many elements besides, the number of those that are kept may differ from p."""


DROPOUTS: dict[str, Callable[..., Any]] = {
    "each element": lambda x, p, training: F.dropout(x, p, training=training),
    "whole rows": lambda x, p, training: F.dropout(x, p, axis=0, training=training),
    "smaller in evaluation": lambda x, p, training: F.dropout(x, p, training=training, mode="downscale_in_infer"),
    "alpha_dropout": lambda x, p, training: F.alpha_dropout(x, p, training),
}

_LOWEST = -1.7580993408473766
"""What alpha_dropout puts in the place of what is dropped, before all is shifted and scaled to the old mean and variance."""


def dropout(types: Sequence[str]) -> Grid:
    """The grid of dropout. types: the floating types that the device has.

    No element of the input is 0, so the zeros of the result are what was dropped, for alpha_dropout those of the gradient: what
    is kept must have the right value, as often as p says, and the gradient the mask of the forward pass.
    """
    axes: dict[str, Any] = {
        "form": DROPOUTS,
        "p": (0.5, 0.0, 1.0, 0.1, 0.75),
        "dtype": types,
        "training": {"training": True, "evaluation": False},
        "layout": LAYOUTS,
        "shape": SHAPES,
        "values": chosen("normal", "near one", "a large mean", "negative"),
    }
    rules: Rules = {
        **OF_LAYOUTS,
        "alpha_dropout rounds each of its steps to a type of 16 bits": lambda form, dtype: (
            form is DROPOUTS["alpha_dropout"] and dtype in HALVES
        ),
        "a number has no rows": lambda form, shape: not shape and form is DROPOUTS["whole rows"],
    }
    further: Rules = {
        **interesting.RULES,
        "Paddle 3.3.1 on the CPU refuses the gradient of a smaller evaluation of one axis": lambda form, shape: (
            form is DROPOUTS["smaller in evaluation"] and len(shape) < 2
        ),
    }
    return Grid(axes, rules, EMPTY).with_further(interesting.OF_SHAPES, further)


def _measure_dropout(case: Case) -> Compared:
    """The result, its gradient, the same again, and how many more or fewer are kept than p allows."""
    rng, p = case.rng(), case.p
    drawn = case.values(rng, case.shape)
    tensor = case.layout.tensor(drawn + np.copysign(0.25, drawn), case.dtype).detach()
    tensor.stop_gradient = False
    weight = paddle.to_tensor(rng.uniform(0.5, 1.5, case.shape)).astype(case.dtype)
    results = []
    for _ in range(2):
        paddle.seed(case.seed)
        results.append(case.form(tensor, p, case.training))
    gradients = paddle.grad(results[:1], [tensor], [weight])
    x, g, found, same, slope = (np.asarray(each.astype("float64").numpy()) for each in (tensor, weight, *results, *gradients))
    scale, dropped, shift = 1.0, 0.0, 0.0
    if case.form is DROPOUTS["smaller in evaluation"]:
        scale = 1.0 if case.training else 1 - p
    elif case.form is DROPOUTS["alpha_dropout"] and case.training and p < 1:
        scale = ((1 - p) * (1 + p * _LOWEST**2)) ** -0.5
        dropped, shift = scale * _LOWEST * (1 - p), -scale * _LOWEST * p
    elif case.training and p < 1:
        scale = 1 / (1 - p)
    p = p if case.training else 0.0
    kept = ((slope if dropped else found) != 0) | (p == 0)  # what is dropped may equal what is kept, but for 0
    if case.form is DROPOUTS["whole rows"]:
        kept = kept.reshape(len(x), -1)[:, :1].reshape(-1, *[1] * (x.ndim - 1)) if x.size else kept
    beyond = abs(kept.sum() - kept.size * (1 - p)) - _STRAY * math.sqrt(kept.size * p * (1 - p)) - _ALWAYS * (0 < p < 1)
    exact = [np.where(kept, scale * x + shift, dropped) + 0 * x, kept * scale * g, found, np.zeros(())]
    terms = [np.abs(scale * x) + 4 * (abs(shift) + abs(dropped)), np.abs(exact[1]), *(0 * each for each in exact[2:])]
    return compared([found, slope, same, np.asarray(max(0.0, beyond))], list(zip(exact, terms, strict=True)), case.dtype)


RUN_DROPOUT = one_by_one(_measure_dropout), add_row_of(lambda case: [("dropout", case.dtype, "")])
