"""Rows for what kernels of single types, sizes or attributes got wrong, and for gradients that must not share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from xpulab.checks.table import Table

COUNT = 4099
"""The largest size that is filled."""


def integer_mean_row(rows: Table, dtype: Any) -> None:
    """A row: the gradient of a mean of two integers, half of an upstream gradient that is even; the control is all of it."""
    x = paddle.arange(8, dtype=dtype).reshape([4, 2])
    x.stop_gradient = False
    (slope,) = paddle.grad(x.mean(axis=1), [x], grad_outputs=[paddle.full([4], 6, dtype)])
    rows.equal(f"gradient of mean, {dtype}", slope, np.full((4, 2), 3), control=np.full((4, 2), 6))


def product_with_zero_row(rows: Table) -> None:
    """A row: the gradient of a product in which one factor is 0."""
    x = paddle.to_tensor([2.0, 0.0, 3.0], stop_gradient=False)
    rows.equal("gradient of prod beside a 0", paddle.grad(x.prod(), [x])[0], [0.0, 6.0, 0.0], control=[0.0, 0.0, 0.0])


def row_of_nothing_summed(rows: Table) -> None:
    """A row: how many of 50 batched products in which nothing is summed are 0; memory that was used holds other numbers."""
    zeros = 0
    for rows_of_product in range(1, 51):
        used = [paddle.full([2, rows_of_product, 3], 7.0) for _ in range(4)]
        del used
        product = paddle.bmm(paddle.ones([2, rows_of_product, 0]), paddle.ones([2, 0, 3]))
        zeros += not any(product.numpy().tobytes())  # what was there may be no number
    rows.equal("bmm where nothing is summed", zeros, 50, control=0)


INTEGERS = ("uint8", "int8", "int16", "int32", "int64")

FILLS: dict[str, tuple[Callable[[int, Any], Any], Sequence[str]]] = {
    "full": (lambda size, dtype: paddle.full([size], 3, dtype), INTEGERS),
    "ones": (lambda size, dtype: paddle.ones([size], dtype), INTEGERS),
    "full_like": (lambda size, dtype: paddle.full_like(paddle.empty([size], dtype), 3), INTEGERS),
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


JOINED: dict[str, Callable[[Any, Any], Any]] = {
    "x + y": lambda x, y: x + y,
    "add_n": lambda x, y: paddle.add_n([x, y]),
    "concat": lambda x, y: paddle.concat([x, y]),
    "copies": lambda x, y: paddle.assign(x) + y.clone(),
}
"""By name two tensors in one operator, whose gradients hold the same numbers."""


def shared_gradient_rows(rows: Table) -> None:
    """A row for each pair of gradients: the second after the first was set to 0, which is the control.

    The last row is about the gradient that is kept of a reshaped tensor.
    """
    for name, join in JOINED.items():
        x, y = _weight(), _weight()
        (join(x, y) * 2.0).sum().backward()
        _add_row(rows, f"two gradients, {name}", x, y)
    x = _weight()
    view = x.reshape([3, 2])
    view.retain_grads()
    (view * 2.0).sum().backward()
    _add_row(rows, "two gradients, a view's", view, x)


def _weight() -> Any:
    return paddle.to_tensor(np.ones([2, 3], "float32"), stop_gradient=False)


def _add_row(rows: Table, name: str, changed: Any, other: Any) -> None:
    before = other.grad.numpy().copy()
    with paddle.no_grad():
        changed.grad.zero_()
    rows.bitwise(name, other.grad.numpy(), before, control=0 * before)
