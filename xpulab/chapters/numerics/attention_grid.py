"""Attention on a grid: the ways in which PaddleNLP calls it, with masks, grouped heads and lengths, forward and backward.

run = one_by_one(measure), partial(add_row, kept)
    check.grid("operators.attention", attention(types), *run, level=level, seed=seed, means=...)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.numerics.operator_grids import LAYOUTS, VALUES, Compared, Right, add_compared, computed, long_sum
from xpulab.chapters.shared import precision
from xpulab.chapters.shared.missing_kernels import lacked
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

BARRED = -1e4
"""What a mask of numbers adds to scores that a query must not see; its exponential is 0 in every type."""


def _by_hand(query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor, mask: Any) -> paddle.Tensor:
    """As PaddleNLP's layers without a fused kernel: heads before positions, scores in float32 or better."""
    heads_first = [each.transpose([0, 2, 1, 3]) for each in (query, key, value)]
    scores = paddle.matmul(heads_first[0] / query.shape[-1] ** 0.5, heads_first[1].transpose([0, 1, 3, 2]))
    scores = scores if mask is None else scores + mask
    wide = scores if scores.dtype == paddle.float64 else scores.astype("float32")
    chances = F.softmax(wide, axis=-1).astype(query.dtype)
    return paddle.matmul(chances, heads_first[2]).transpose([0, 2, 1, 3])


LEFT = 1e-12
"""By how much the chance of a key is uncertain, before the factor for rounding: the CPU's softmax leaves exp(-64)."""


@dataclass(frozen=True)
class Way:
    """A way to call attention.

    call: of query, key, value and the mask. mask: "", "numbers" or "bool". is_causal: whether a query sees no later key.
    """

    call: Callable[..., paddle.Tensor]
    mask: str = ""
    is_causal: bool = False


WAYS = {
    "a mask of numbers": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "numbers"),
    "a mask of bool": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, mask), "bool"),
    "causal": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v, is_causal=True), is_causal=True),
    "every key": Way(lambda q, k, v, mask: F.scaled_dot_product_attention(q, k, v)),
    "flash, causal": Way(lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v, causal=True)[0], is_causal=True),
    "flash, every key": Way(lambda q, k, v, mask: F.flash_attention.flash_attention(q, k, v)[0]),
    "by hand": Way(_by_hand, "numbers"),
}

LENGTHS = {
    "5 x 5": (5, 5),
    "1 x 1": (1, 1),
    "one query": (1, 7),
    "more keys": (5, 9),
    "around 32": (33, 31),
    "65 x 65": (65, 65),
}
"""By name how many queries and keys."""

HEADS = {"4 of 4": (4, 4), "4 of 2": (4, 2), "4 of 1": (4, 1), "one": (1, 1)}
"""By name how many heads, and how many key heads they share."""

SIZES = (16, 1, 64, 80, 128)
"""Of a head; 80 is no power of two."""

PADDINGS: Mapping[str, Callable[[int], Any]] = {
    "none": lambda keys: np.ones(keys, bool),
    "left": lambda keys: np.arange(keys) >= keys // 3,
    "right": lambda keys: np.arange(keys) < max(1, keys - keys // 3),
}
"""By name which of so many keys are no padding, of the last row of the batch."""

FROZEN = {"nothing": (), "query": (0,), "key": (1,), "value": (2,), "key and value": (1, 2)}


def attention(types: Sequence[str]) -> Grid:
    """The grid of attention. types: the floating types that the device has."""
    axes: dict[str, Any] = {
        "way": WAYS,
        "dtype": types,
        "layout": {name: LAYOUTS[name] for name in ("contiguous", "transposed", "sliced with an offset", "strided")},
        "batch": (2, 1, 1025),
        "lengths": LENGTHS,
        "heads": HEADS,
        "size": SIZES,
        "values": {name: VALUES[name] for name in ("normal", "near zero", "ties", "negative")},
        "padding": PADDINGS,
        "frozen": FROZEN,
    }
    return Grid(axes, RULES)


RULES: dict[str, Callable[..., bool]] = {
    "causal attention is square here": lambda way, lengths: way.is_causal and lengths[0] != lengths[1],
    "only a mask knows of padding": lambda way, padding: not way.mask and padding is not PADDINGS["none"],
    "a large batch has short rows": lambda batch, lengths, size: batch > 2 and (lengths[1] > 9 or size > 16),
}


def measure(case: Case) -> Compared:
    """Compute attention and the gradients of what is not frozen on the device in use."""
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
        mask = paddle.to_tensor(np.where(allowed, 0.0, BARRED)).astype(case.dtype)
    share = heads // key_heads
    left = (
        LEFT + precision.LEAST.get(case.dtype, 0.0) * 2.0 ** precision.BITS[case.dtype]
    )  # times the last bit: the least chance

    def call(query: paddle.Tensor, key: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        if share > 1:  # as PaddleNLP does
            key, value = (paddle.repeat_interleave(each, share, axis=2) for each in (key, value))
        return way.call(query, key, value, mask)

    def parts(query: np.ndarray, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chances of the keys, [batch, heads, queries, keys], and how uncertain they are."""
        every, scale = np.repeat(key, share, axis=2), case.size**-0.5
        scores, sizes = (_products(*pair) * scale for pair in ((query, every), (np.abs(query), np.abs(every))))
        scores = np.where(allowed, scores, -np.inf)
        chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        share_of_error = (4 + sizes.max(axis=-1, keepdims=True)) * long_sum(case.size) * long_sum(keys)
        return chances, share_of_error * chances + left

    def value_of(query: np.ndarray, key: np.ndarray, value: np.ndarray) -> Right:
        chances, uncertain = parts(query, key)
        every = np.repeat(value, share, axis=2)
        return _mixed(chances, every), _mixed(uncertain, np.abs(every))

    def slopes(weight: np.ndarray, query: np.ndarray, key: np.ndarray, value: np.ndarray) -> list[Right]:
        chances, uncertain = parts(query, key)
        every, values, scale = np.repeat(key, share, axis=2), np.repeat(value, share, axis=2), case.size**-0.5
        of_chances, sizes = (_products(*pair) for pair in ((weight, values), (np.abs(weight), np.abs(values))))
        of_scores = chances * (of_chances - (of_chances * chances).sum(axis=-1, keepdims=True)) * scale
        around = uncertain * (sizes + (sizes * chances).sum(axis=-1, keepdims=True)) * scale

        def of_key_heads(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
            return _mixed(shares.swapaxes(2, 3), rows).reshape(*key.shape[:3], share, key.shape[3]).sum(axis=3)

        return [
            (_mixed(of_scores, every), _mixed(around, np.abs(every))),
            (of_key_heads(of_scores, query), of_key_heads(around, np.abs(query)) * long_sum(queries * share)),
            (of_key_heads(chances, weight), of_key_heads(uncertain, np.abs(weight)) * long_sum(queries * share)),
        ]

    return computed(rng, case.dtype, call, given, value_of, slopes, case.frozen)


def _products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The product of every query with every key: from [batch, positions, heads, size] to [batch, heads, queries, keys]."""
    return np.asarray(left.transpose(0, 2, 1, 3) @ right.transpose(0, 2, 3, 1))


def _mixed(shares: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Sums of rows [batch, keys, heads, size] with these shares [batch, heads, queries, keys]."""
    return np.asarray((shares @ rows.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3))


def add_row(kept: Mapping[str, int], rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case. kept: as for product_grid.add_row."""
    if isinstance(found, Exception) and case.way.is_causal and (reason := lacked("flash_attn", case.dtype, "causal")):
        rows.skip(case.name, reason)
    else:
        kernel = "matmul" if case.way.call is _by_hand else "flash_attn"
        add_compared(rows, case.name, found, case.dtype, (kernel,), kept.get(case.dtype), composed=True)
