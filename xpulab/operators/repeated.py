"""Reading and adding by indices that occur thousands of times: values and gradients, compared with numpy.

The elements that an operator reads or adds to are found by applying the same operator of numpy to the positions of elements.
The gradient of a position is the sum over all of its occurrences; kernels that write instead of add give the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.operators.inputs import numbers_of, rounded, tensor_of

ROWS, COLUMNS, REPEATS = 5, 6, 4096
_LARGEST = 3


@dataclass(frozen=True)
class Reading:
    """An operator that copies elements of x, [ROWS, COLUMNS], by an index, [REPEATS].

    operator: takes two tensors. positions: takes the positions of x and the index, as arrays; the same in numpy.
    """

    operator: Callable[[Any, Any], Any]
    positions: Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Adding:
    """An operator that adds a value to elements of x. value: its shape. operator: takes x, index and value."""

    operator: Callable[[Any, Any, Any], Any]
    positions: Callable[[np.ndarray, np.ndarray], np.ndarray]
    value: tuple[int, ...]


def _one_for_each_column(index: Any) -> Any:
    return index.reshape([-1, 1]).tile([1, COLUMNS])


READING = {
    "gather": Reading(paddle.gather, lambda at, index: at[index]),
    "gather, axis 1": Reading(lambda x, index: paddle.gather(x, index, axis=1), lambda at, index: at[:, index]),
    "index_select": Reading(paddle.index_select, lambda at, index: at[index]),
    "index_select, axis 1": Reading(lambda x, index: paddle.index_select(x, index, 1), lambda at, index: at[:, index]),
    "embedding": Reading(lambda x, index: F.embedding(index, x), lambda at, index: at[index]),
    "gather_nd": Reading(lambda x, index: paddle.gather_nd(x, index.unsqueeze(-1)), lambda at, index: at[index]),
    "take_along_axis": Reading(
        lambda x, index: paddle.take_along_axis(x, _one_for_each_column(index), 0, broadcast=False),
        lambda at, index: at[index],
    ),
    "x[index]": Reading(lambda x, index: x[index], lambda at, index: at[index]),
}
ADDING = {
    "index_add": Adding(
        lambda x, index, value: paddle.index_add(x, index, 0, value), lambda at, index: at[index], (REPEATS, COLUMNS)
    ),
    "put_along_axis": Adding(
        lambda x, index, value: paddle.put_along_axis(x, _one_for_each_column(index), value, 0, reduce="add", broadcast=False),
        lambda at, index: at[index],
        (REPEATS, COLUMNS),
    ),
    "scatter_nd_add": Adding(
        lambda x, index, value: paddle.scatter_nd_add(x, index.unsqueeze(-1), value),
        lambda at, index: at[index],
        (REPEATS, COLUMNS),
    ),
}
"""scatter is in neither: with overwrite=False it first sets the rows of the index to zero. index_put is
left out: on simulated cards its gradient runs the CPU's kernel on memory of the card, which ends the process (Paddle 3.3.1)."""


@dataclass(frozen=True)
class Compared:
    """A result of an operator. found: Paddle's. expected: numpy's. scale: by element the sum of the absolute terms.

    once: what is expected of a kernel that writes where it should add.
    """

    found: np.ndarray
    expected: np.ndarray
    scale: np.ndarray
    once: np.ndarray


def compared(name: str, dtype: str, seed: int) -> dict[str, Compared]:
    """By "value", "gradient" and "gradient of the value" what this operator gives on the device in use."""
    generator = np.random.default_rng(seed)
    index = generator.integers(0, ROWS, REPEATS)
    x = _numbers((ROWS, COLUMNS), generator, dtype)
    at = np.arange(x.size).reshape(x.shape)
    tensor = tensor_of(x, dtype)
    tensor.stop_gradient = False
    if name in READING:
        return _reading(READING[name], x, tensor, index, at, generator, dtype)
    if name == "scatter":
        return _scatter(x, tensor, index, generator, dtype)
    return _adding(ADDING[name], x, tensor, index, at, generator, dtype)


NAMES = (*READING, *ADDING, "scatter")


def _reading(case: Reading, x: Any, tensor: Any, index: Any, at: Any, generator: Any, dtype: str) -> dict[str, Compared]:
    positions = case.positions(at, index)
    result = case.operator(tensor, paddle.to_tensor(index))
    upstream = _numbers(positions.shape, generator, dtype)
    (gradient,) = paddle.grad(result, [tensor], tensor_of(upstream, dtype))
    read = x.reshape(-1)[positions]
    return {
        "value": Compared(numbers_of(result), read, np.zeros(read.shape), read[::-1]),
        "gradient": _sums(numbers_of(gradient), np.zeros(x.shape), positions, upstream),
    }


def _adding(case: Adding, x: Any, tensor: Any, index: Any, at: Any, generator: Any, dtype: str) -> dict[str, Compared]:
    value = _numbers(case.value, generator, dtype)
    added = tensor_of(value, dtype)
    added.stop_gradient = False
    result = case.operator(tensor, paddle.to_tensor(index), added)
    return _of_additions(x, tensor, value, added, result, case.positions(at, index), generator, dtype)


def _scatter(x: Any, tensor: Any, index: Any, generator: Any, dtype: str) -> dict[str, Compared]:
    """scatter with overwrite=False: the rows of the index begin at zero; only the gradient of the value is defined so."""
    value = _numbers((REPEATS, COLUMNS), generator, dtype)
    added = tensor_of(value, dtype)
    added.stop_gradient = False
    result = paddle.scatter(tensor.detach(), paddle.to_tensor(index), added, overwrite=False)
    at = np.arange(x.size).reshape(x.shape)
    found = _of_additions(np.zeros(x.shape), tensor, value, added, result, at[index], generator, dtype)
    return {what: each for what, each in found.items() if what != "gradient"}


def _of_additions(
    x: Any, tensor: Any, value: Any, added: Any, result: Any, positions: Any, generator: Any, dtype: str
) -> dict[str, Compared]:
    upstream = _numbers(x.shape, generator, dtype)
    of_x, of_value = paddle.grad(result, [tensor, added], tensor_of(upstream, dtype), allow_unused=True)
    passed = upstream.reshape(-1)[positions]
    found = {
        "value": _sums(numbers_of(result), x, positions, value),
        "gradient of the value": Compared(numbers_of(of_value), passed, np.zeros(passed.shape), passed[::-1]),
    }
    if of_x is not None:
        found["gradient"] = Compared(numbers_of(of_x), upstream, np.zeros(upstream.shape), upstream[::-1])
    return found


def _sums(found: np.ndarray, begin: np.ndarray, positions: np.ndarray, terms: np.ndarray) -> Compared:
    """The sums of the terms at each position, and what is there when each term replaces the one before."""
    total, scale, once = begin.copy(), np.abs(begin), begin.copy()
    np.add.at(total.reshape(-1), positions, terms)
    np.add.at(scale.reshape(-1), positions, np.abs(terms))
    once.reshape(-1)[positions] = terms
    return Compared(found, total, scale, once)


def _numbers(shape: tuple[int, ...], generator: np.random.Generator, dtype: str) -> np.ndarray:
    """Small integers, of which sums in float32 are exact."""
    return rounded(generator.integers(1, _LARGEST + 1, shape).astype("float64"), dtype)
