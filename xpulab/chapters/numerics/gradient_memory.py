"""Second gradients of products against their closed form, gradients that must not share memory, and what comes after an error.

A product z = matmul(a, b) has the gradients u b^T and a^T u. Summed with weights p and q they are
s = <u, matmul(p, b) + matmul(a, q)>. So the gradient of s with respect to u is matmul(p, b) + matmul(a, q), that with respect
to a is the one of <u, matmul(a, q)>, and that with respect to b the one of <u, matmul(p, b)>.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from xpulab.checks.compare import first_line
from xpulab.checks.table import Table

Shape = tuple[int, ...]
Gradients = dict[str, np.ndarray]

FACTORS: dict[str, tuple[Shape, Shape]] = {
    "two vectors": ((4,), (4,)),
    "a vector and a matrix": ((4,), (4, 3)),
    "a matrix and a vector": ((3, 4), (4,)),
    "two matrices": ((3, 4), (4, 5)),
    "a batch and a vector": ((2, 3, 4), (4,)),
    "two batches": ((2, 3, 4), (2, 4, 5)),
    "a batch and a matrix": ((2, 3, 4), (4, 5)),
    "a matrix and a batch": ((3, 4), (2, 4, 5)),
    "two batches, both repeated": ((2, 1, 3, 4), (1, 2, 4, 5)),
}
"""By name the shapes of the factors."""

VECTOR_AND_BATCH: tuple[Shape, Shape] = ((4,), (2, 4, 5))
"""Paddle raises, and all later gradients of the process fail: for a process of its own."""


def second_gradients(shapes: tuple[Shape, Shape], dtype: str, seed: int, as_matrices: bool = False) -> tuple[Any, Gradients]:
    """What Paddle gives for left, right and upstream, or the text of an error; and the closed form.

    as_matrices: the workaround: vectors become matrices before the product, and their axis is taken away behind it.
    """
    rng = np.random.default_rng(seed)
    a, b, p, q = (rng.normal(size=shape).astype(dtype) for shape in (*shapes, *shapes))
    upstream = rng.normal(size=np.matmul(a, b).shape).astype(dtype)
    exact = {
        "left": _slopes(upstream, a, q)[0],
        "right": _slopes(upstream, p, b)[1],
        "upstream": np.asarray(np.matmul(p, b) + np.matmul(a, q)),
    }
    left, right, above = (paddle.to_tensor(each, stop_gradient=False) for each in (a, b, upstream))
    try:
        product = _product_of_matrices(left, right) if as_matrices else paddle.matmul(left, right)
        first = paddle.grad([product], [left, right], [above], create_graph=True)
        total = (first[0] * paddle.to_tensor(p)).sum() + (first[1] * paddle.to_tensor(q)).sum()
        found = paddle.grad([total], [left, right, above])
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {first_line(error)}", exact
    return {name: each.numpy() for name, each in zip(exact, found, strict=True)}, exact


def _product_of_matrices(left: Any, right: Any) -> Any:
    rows = left.unsqueeze(0) if left.ndim == 1 else left
    columns = right.unsqueeze(-1) if right.ndim == 1 else right
    product = paddle.matmul(rows, columns)
    product = product.squeeze(-2) if left.ndim == 1 else product
    return product.squeeze(-1) if right.ndim == 1 else product


def _slopes(upstream: np.ndarray, a: np.ndarray, b: np.ndarray) -> list[np.ndarray]:
    """The gradients of <upstream, matmul(a, b)> with respect to a and b."""
    rows, columns = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    above = upstream.reshape(np.matmul(rows, columns).shape)
    slopes = above @ np.swapaxes(columns, -1, -2), np.swapaxes(rows, -1, -2) @ above
    return [
        _summed_to(slope, factor.shape).reshape(of.shape)
        for slope, factor, of in zip(slopes, (rows, columns), (a, b), strict=True)
    ]


def _summed_to(slope: np.ndarray, shape: Shape) -> np.ndarray:
    slope = slope.sum(tuple(range(slope.ndim - len(shape))))
    return slope.sum(tuple(axis for axis, size in enumerate(shape) if size == 1), keepdims=True)


def add_second_gradients(rows: Table, name: str, found: Any, exact: Gradients, coarse: float) -> None:
    """A row for the gradients of both factors, and one for that of what came from above. The controls are twice as large.

    coarse: 0 where products keep all bits.
    """
    if isinstance(found, str):
        rows.equal(name, found, "no error", control="another error")
        return
    above, wanted = found["upstream"], exact["upstream"]
    within = (1e-5 if wanted.dtype == np.float32 else 1e-12) + 16 * coarse
    factors, right = (np.concatenate([each[of].ravel() for of in ("left", "right")]) for each in (found, exact))
    rows.close(name, factors, right, atol=within, control=2 * right)
    if above.shape == wanted.shape:
        rows.close(f"{name}, upstream", above, wanted, atol=within, control=2 * wanted)
    else:
        rows.equal(f"{name}, upstream", str(above.shape), str(wanted.shape), control="another shape")


def gradient_after_an_error() -> list[float]:
    """The gradient of w * w at w = 3 by backward(), after a gradient that raised. For a process of its own."""
    second_gradients(VECTOR_AND_BATCH, "float64", 0)
    weight: Any = paddle.to_tensor([3.0], stop_gradient=False)
    (weight * weight).sum().backward()
    return [] if weight.grad is None else weight.grad.tolist()


JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "x - y": lambda x, y: x - y,
    "add_n": lambda x, y: paddle.add_n([x, y]),
    "reshaped": lambda x, y: x.reshape([6]) + y.flatten(),
    "concat": lambda x, y: paddle.concat([x, y]),
    "stack": lambda x, y: paddle.stack([x, y]),
    "copies": lambda x, y: paddle.assign(x) + y.clone(),
}
"""By name two tensors in one operator, whose gradients hold the same numbers."""

IN_PLACE: dict[str, Callable[[Any], Any]] = {"zero_": lambda x: x.zero_(), "scale_": lambda x: x.scale_(3.0)}


def _weight() -> Any:
    return paddle.to_tensor(np.ones([2, 3], "float32"), stop_gradient=False)


def left_of_the_other(join: Callable[[Any, Any], Any], change: Callable[[Any], Any]) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of y before and after that of x is changed in place."""
    x, y = (_weight() for _ in range(2))
    (join(x, y) * 2.0).sum().backward()
    before = y.grad.numpy().copy()
    with paddle.no_grad():
        change(x.grad)
    return before, y.grad.numpy()


def kept_beside_a_view(copied: bool) -> tuple[np.ndarray, np.ndarray]:
    """The gradient of x before and after that of x.reshape, which is kept, is set to 0. copied: its copy is."""
    x = _weight()
    y = x.reshape([3, 2])
    y.retain_grads()
    (y * 2.0).sum().backward()
    before = x.grad.numpy().copy()
    with paddle.no_grad():
        (y.grad.clone() if copied else y.grad).zero_()
    return before, x.grad.numpy()


def add_shared_gradients(rows: Table) -> None:
    """A row for each pair of gradients, and how it is changed in place. The control is what the changed one holds."""
    for name, join in JOINED.items():
        for how, change in IN_PLACE.items():
            before, after = left_of_the_other(join, change)
            rows.bitwise(f"{name}, {how}", after, before, control=0 * before)
    for name, copied in (("a view's", False), ("a view's, copied first", True)):
        before, after = kept_beside_a_view(copied)
        rows.bitwise(name, after, before, control=0 * before)
