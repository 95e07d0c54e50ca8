"""Gradients of reading and writing by index, compared with finite differences.

    for name, case in index_gradients.CASES.items():
        got, expected = index_gradients.gradients(case), index_gradients.differences(case)

All operators here copy and add elements, so they are linear in the tensor and in the value: finite differences have no error
but rounding, at any step. Repeated positions are read, added and put with accumulate; what happens when different values are
assigned to one position is not defined.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import paddle

SHAPE = (4, 6)
"""The shape of the tensor."""

_STEP = 0.5
MASK = np.random.default_rng(16).random(SHAPE) < 0.5
ROWS = np.array([True, False, True, True])


@dataclass(frozen=True)
class GradientCase:
    """An operator on a tensor x of SHAPE and a value.

    function: takes x and the value (None without one), returns a tensor.
    value: the shape of the value, or None when there is none.
    """

    function: Callable[[Any, Any], Any]
    value: tuple[int, ...] | None = None


def gradients(case: GradientCase, dtype: Any = "float32") -> dict[str, np.ndarray]:
    """By "x" and "value" Paddle's gradient of the weighted sum of the result, on the device in use; zeros where it is None."""
    tensors = {name: paddle.to_tensor(array, dtype, stop_gradient=False) for name, array in arguments(case).items()}
    _weighted(case.function(tensors["x"], tensors.get("value"))).backward()
    found = {name: each.grad for name, each in tensors.items()}
    return {
        name: np.zeros(tensors[name].shape) if each is None else each.astype("float32").numpy() for name, each in found.items()
    }


@cache
def differences(case: GradientCase) -> dict[str, np.ndarray]:
    """The same from central differences in float32, element by element; computed once for each case."""
    given = arguments(case)

    def total(changed: dict[str, np.ndarray]) -> float:
        tensors = {name: paddle.to_tensor(array) for name, array in changed.items()}
        return float(_weighted(case.function(tensors["x"], tensors.get("value"))))

    slopes = {name: np.zeros(array.shape) for name, array in given.items()}
    for name, array in given.items():
        for place in np.ndindex(array.shape):
            step = np.zeros_like(array)
            step[place] = _STEP
            more, less = np.asarray(array + step), np.asarray(array - step)
            slopes[name][place] = (total({**given, name: more}) - total({**given, name: less})) / (2 * _STEP)
    return slopes


def arguments(case: GradientCase) -> dict[str, np.ndarray]:
    """The tensor and the value, small integers."""
    shapes = {"x": SHAPE} if case.value is None else {"x": SHAPE, "value": case.value}
    return {name: np.resize(np.arange(1, 8, dtype="float32"), shape) for name, shape in shapes.items()}


def of_values(dtype: str) -> dict[str, np.ndarray]:
    """By name the gradient of a value of this type that is assigned by a tensor or a mask; it may end the process."""
    return {name: gradients(case, dtype)["value"] for name, case in BY_POSITION.items()}


def _weighted(result: paddle.Tensor) -> paddle.Tensor:
    """The sum of the elements with weights 1, 2, 3 and so on, in float32, where these sums are exact."""
    weights = paddle.arange(1, int(np.prod(result.shape)) + 1, dtype="float32").reshape(result.shape)
    return (result.astype("float32") * weights).sum()


# ------------------------------------------------------------------------------------------------------------- the cases


def positions(*numbers: Any) -> paddle.Tensor:
    """A tensor of positions."""
    return paddle.to_tensor(numbers, "int64")


def assign(index: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """The operator x[index] = value on a copy of x; the index is made when it runs, on the device in use then."""

    def function(x: paddle.Tensor, value: paddle.Tensor) -> paddle.Tensor:
        copy = x * 1
        copy[index()] = value
        return copy

    return function


def mask() -> paddle.Tensor:
    """A mask of SHAPE."""
    return paddle.to_tensor(MASK)


def rows() -> paddle.Tensor:
    """A mask of the rows; three of four are True."""
    return paddle.to_tensor(ROWS)


def _in_float32(index: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    """Like assign, with the tensor and the value in float32 while the value is assigned."""
    return lambda x, value: assign(index)(x.astype("float32"), value.astype("float32")).astype(x.dtype)


def _written_by_index(x: paddle.Tensor, _: None) -> paddle.Tensor:
    copy = x * 1
    copy[:, 1:3] = 2 * copy[:, 1:3]
    return copy


def _written_through_a_view(x: paddle.Tensor, _: None) -> paddle.Tensor:
    copy = x * 1
    copy[:, 1:3].scale_(2.0)
    return copy


AT_NEGATIVE = {
    "put_along_axis, a negative position": GradientCase(
        lambda x, value: paddle.put_along_axis(x, positions([-1], [-2], [-1], [-6]), value, 1), (4, 1)
    ),
}
"""Writing at negative positions, whose gradient Paddle 3.3.1 reads and writes beside its memory."""

ONE_VALUE = {
    "masked_fill": GradientCase(lambda x, value: paddle.masked_fill(x, mask(), value), ()),
    "masked_fill, shape [1]": GradientCase(lambda x, value: paddle.masked_fill(x, mask(), value), (1,)),
    "diagonal_scatter": GradientCase(lambda x, value: paddle.diagonal_scatter(x, value), (4,)),
}
"""Writing whose gradient of the value Paddle 3.3.1 gets wrong."""

WORKAROUNDS = {
    "put_along_axis, a negative position": GradientCase(
        lambda x, value: paddle.put_along_axis(x, positions([-1], [-2], [-1], [-6]) % SHAPE[1], value, 1), (4, 1)
    ),
    "masked_fill": GradientCase(lambda x, value: paddle.where(mask(), value, x), ()),
    "masked_fill, shape [1]": GradientCase(lambda x, value: paddle.where(mask(), value, x), (1,)),
    "diagonal_scatter": GradientCase(
        lambda x, value: paddle.where(paddle.eye(4, 6).astype("bool"), value.reshape([4, 1]), x), (4,)
    ),
    "written through a view": GradientCase(_written_by_index),
    "as_strided, overlapping": GradientCase(lambda x, _: x.flatten()[positions([0, 1, 2], [1, 2, 3], [2, 3, 4])]),
    "unfold, overlapping": GradientCase(lambda x, _: x[:, positions([0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5])]),
}
"""For each case of ONE_VALUE, AT_NEGATIVE and THROUGH_VIEWS the same function written in another way."""

BY_POSITION = {
    "by a tensor": GradientCase(assign(lambda: positions(0, 2)), (2, 6)),
    "by a mask of rows": GradientCase(assign(rows), (3, 6)),
}
"""Writing whose gradient of the value Paddle 3.3.1 gets right in float32 only."""

OF_ANY_TYPE = {
    "by a tensor, in float32": GradientCase(_in_float32(lambda: positions(0, 2)), (2, 6)),
    "by a mask of rows, in float32": GradientCase(_in_float32(rows), (3, 6)),
}
"""The same function written in another way, whose gradient is right in every type."""

THROUGH_VIEWS = {
    "written through a view": GradientCase(_written_through_a_view),
    "as_strided, overlapping": GradientCase(lambda x, _: paddle.as_strided(x, [3, 3], [1, 1])),
    "unfold, overlapping": GradientCase(lambda x, _: x.unfold(1, 3, 1)),
}
"""Views whose gradient Paddle 3.3.1 gets wrong."""
