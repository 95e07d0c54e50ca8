"""Products on a grid: matrix products, linear layers and sums of products, with both gradients.

    run = one_by_one(measure), partial(add_row, kept)
    check.grid("numerics.products", products(types), *run, level=level, seed=seed, means=...)

Each product is a sum over indices, written as einsum does, and so is each of its gradients: the gradient of one factor is the
product of the other one and the weight of the result, summed over what was broadcast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    long_sum,
    summed,
)
from xpulab.checks.grid import Case, Grid
from xpulab.checks.table import Table

ALPHA, BETA = 2.0, -0.5
"""Of addmm: the factors of the product and of what is added. Exact in every type, and no defaults."""


@dataclass(frozen=True)
class Product:
    """A product of two tensors, and what is added to it.

    call: Paddle's, of both and of what is added. left, right, result: their indices, one letter each; "..." stands for the axes
    of a batch. m and n are rows and columns, k is summed; b is 2.
    added: the shape of what is added, of the result's; None for nothing. factor: of the product. share: of what is added.
    kernel: Paddle's name of it.
    """

    call: Callable[..., paddle.Tensor]
    left: str
    right: str
    result: str
    kernel: str
    added: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None
    factor: float = 1.0
    share: float = 1.0


def _einsum(left: str, right: str, result: str) -> Product:
    """As PaddleNLP's gates and layers of experts call it."""
    form = f"{left},{right}->{result}"

    def call(x: paddle.Tensor, y: paddle.Tensor) -> Any:
        return paddle.einsum(form, x, y)

    return Product(call, left, right, result, "einsum")


PRODUCTS = {
    "matmul": Product(lambda x, y: paddle.matmul(x, y), "...mk", "...kn", "...mn", "matmul"),
    "matmul, transpose_x": Product(lambda x, y: paddle.matmul(x, y, transpose_x=True), "...km", "...kn", "...mn", "matmul"),
    "matmul, transpose_y": Product(lambda x, y: paddle.matmul(x, y, transpose_y=True), "...mk", "...nk", "...mn", "matmul"),
    "matmul, transpose both": Product(
        lambda x, y: paddle.matmul(x, y, transpose_x=True, transpose_y=True), "...km", "...nk", "...mn", "matmul"
    ),
    "matmul, a vector left": Product(lambda x, y: paddle.matmul(x, y), "k", "...kn", "...n", "matmul"),
    "matmul, a vector right": Product(lambda x, y: paddle.matmul(x, y), "...mk", "k", "...m", "matmul"),
    "matmul, two vectors": Product(lambda x, y: paddle.matmul(x, y), "k", "k", "", "matmul"),
    "x @ y": Product(lambda x, y: x @ y, "...mk", "...kn", "...mn", "matmul"),
    "mm": Product(lambda x, y: paddle.mm(x, y), "mk", "kn", "mn", "matmul"),
    "bmm": Product(lambda x, y: paddle.bmm(x, y), "bmk", "bkn", "bmn", "bmm"),
    "linear": Product(lambda x, y: F.linear(x, y), "...mk", "kn", "...mn", "matmul"),
    "linear with a bias": Product(
        lambda x, y, bias: F.linear(x, y, bias), "...mk", "kn", "...mn", "matmul", added=lambda shape: shape[-1:]
    ),
    "addmm": Product(
        lambda x, y, given: paddle.addmm(given, x, y, beta=BETA, alpha=ALPHA),
        *("mk", "kn", "mn", "addmm"),
        added=lambda shape: shape,
        factor=ALPHA,
        share=BETA,
    ),
    "addmm of a row": Product(
        lambda x, y, given: paddle.addmm(given, x, y, beta=BETA, alpha=ALPHA),
        *("mk", "kn", "mn", "addmm"),
        added=lambda shape: (1, shape[1]),
        factor=ALPHA,
        share=BETA,
    ),
    "dot": Product(lambda x, y: paddle.dot(x, y), "bk", "bk", "b", "dot"),
    "outer": Product(lambda x, y: paddle.outer(x, y), "m", "n", "mn", "multiply"),
    "einsum s,se->se": _einsum("k", "kn", "kn"),
    "einsum se,se->s": _einsum("mk", "mk", "m"),
    "einsum se,sc->sec": _einsum("mk", "mn", "mkn"),
    "einsum se,sec->sec": _einsum("mk", "mkn", "mkn"),
    "einsum sec,sm->ecm": _einsum("kmb", "kn", "mbn"),
    "einsum sec,ecm->sm": _einsum("mbk", "bkn", "mn"),
    "einsum ij,k->ijk": _einsum("mk", "n", "mkn"),
    "einsum th,tho->to": _einsum("mk", "mkn", "mn"),
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

_EMPTY = {"sizes": ["no row", "nothing summed"]}
"""Cases without elements or terms say nothing about values, layouts and types."""

BATCHES: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "none": ((), ()),
    "the same": ((2,), (2,)),
    "left only": ((3,), ()),
    "right only": ((), (3,)),
    "both repeated": ((2, 1), (1, 3)),
    "a batch of one": ((1,), (4,)),
    "three axes": ((2, 3, 2), (2, 3, 2)),
}
"""By name the axes of the batch left and right."""

FROZEN = {"nothing": (), "left": (0,), "right": (1,)}
"""By name the places of factors that want no gradient."""


def products(types: Sequence[str]) -> Grid:
    """The grid of products. types: the floating types that the device has."""

    def one_axis_transposed(product: str, layout: Any, other: Any, batch: Any) -> bool:
        shapes = _shapes(PRODUCTS[product], (2, 2, 2), batch)
        return any(
            each is LAYOUTS["transposed"] and len(shape) < 2 for each, shape in zip((layout, other), shapes, strict=True)
        )

    def nothing_repeated(product: str, layout: Any, other: Any, sizes: Any) -> bool:
        shapes = _shapes(PRODUCTS[product], sizes, ((), ()))
        return any(each is LAYOUTS["broadcast"] and 0 in shape for each, shape in zip((layout, other), shapes, strict=True))

    axes: dict[str, Any] = {
        "product": tuple(PRODUCTS),
        "dtype": types,
        "layout": LAYOUTS,
        "other": LAYOUTS,
        "sizes": SIZES,
        "batch": BATCHES,
        "values": VALUES,
        "frozen": FROZEN,
    }
    rules: dict[str, Callable[..., bool]] = {
        "one axis cannot be transposed": one_axis_transposed,
        "an empty tensor has no row to repeat": nothing_repeated,
        "this product has no batch there": lambda product, batch: any(
            axes and "..." not in indices
            for axes, indices in zip(batch, (PRODUCTS[product].left, PRODUCTS[product].right), strict=True)
        ),
        "Paddle 3.3.1 leaves the result of bmm unset where nothing is summed": lambda product, sizes: (
            product == "bmm" and not sizes[1]
        ),
        "Paddle 3.3.1 crashes in the gradient of addmm of nothing where a factor is frozen": lambda product, sizes, frozen: (
            product.startswith("addmm") and bool(frozen) and 0 in sizes
        ),
    }
    return Grid(axes, rules, _EMPTY)


def _shapes(product: Product, sizes: tuple[int, ...], batch: Any) -> list[tuple[int, ...]]:
    """The shapes of both factors."""
    of_index = dict(zip("mkn", sizes, strict=True)) | {"b": 2}
    return [
        (*axes, *(of_index[index] for index in indices.removeprefix("...")))
        for indices, axes in zip((product.left, product.right), batch, strict=True)
    ]


def measure(case: Case) -> Compared:
    """Compute the product and the gradients of both factors and of what is added on the device in use."""
    product, rng = PRODUCTS[case.product], case.rng()
    left, right = _shapes(product, case.sizes, case.batch)
    given = [case.layout(case.values(rng, left), case.dtype), case.other(case.values(rng, right), case.dtype)]
    form = f"{product.left},{product.right}->{product.result}"
    if product.added:
        shape = np.einsum(form, np.zeros(left), np.zeros(right)).shape
        given.append(paddle.to_tensor(rng.standard_normal(product.added(shape))).astype(case.dtype))

    def value(x: np.ndarray, y: np.ndarray, *added: np.ndarray) -> Right:
        exact, terms = (product.factor * np.einsum(form, *pair) for pair in ((x, y), (np.abs(x), np.abs(y))))
        terms = np.abs(terms) * long_sum(x.size * y.size // max(1, exact.size))
        for each in added:
            exact, terms = exact + product.share * each, terms + np.abs(product.share * each)
        return exact, terms

    def slopes(weight: np.ndarray, x: np.ndarray, y: np.ndarray, *added: np.ndarray) -> list[Right]:
        found = [
            _slope(product.factor * weight, product.result, y, product.right, x, product.left),
            _slope(product.factor * weight, product.result, x, product.left, y, product.right),
        ]
        for each in added:
            slope = summed(product.share * weight, each)
            found.append((slope, summed(np.abs(product.share * weight), each) * long_sum(weight.size // max(1, each.size))))
        return found

    return computed(rng, case.dtype, product.call, given, value, slopes, case.frozen)


def _slope(weight: np.ndarray, indices: str, factor: np.ndarray, of_factor: str, of: np.ndarray, of_wanted: str) -> Right:
    """The gradient of one factor: the weight of the result times the other factor, summed to the shape of the one."""
    wanted = of_wanted if "..." in of_wanted or "..." not in indices + of_factor else f"...{of_wanted}"
    slope, terms = (
        summed(np.einsum(f"{indices},{of_factor}->{wanted}", *pair), of)
        for pair in ((weight, factor), (np.abs(weight), np.abs(factor)))
    )
    return slope, terms * long_sum(weight.size * factor.size // max(1, of.size))


def add_row(kept: Mapping[str, int], rows: Table, case: Case, found: Compared | Exception) -> None:
    """Add the row of a case. kept: by type the bits that products of the device keep of their factors, where they are fewer."""
    product = PRODUCTS[case.product]
    is_sum = product.added is not None  # of two operators where a layer is not one
    add_compared(rows, case.name, found, case.dtype, (product.kernel,), kept.get(case.dtype), composed=is_sum)
