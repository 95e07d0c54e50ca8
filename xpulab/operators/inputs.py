"""Numbers for a recorded operator: the recorded ones, else random ones of its shapes and types that obey what those obeyed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle

from xpulab.operators.calls import FLOATS, SHARES, SORTED, Call, CurrentPlace, NamedType, TensorSpec, Unknown
from xpulab.operators.recorder import ORIGINAL, OWNERS, results_of
from xpulab.reference.bounds import BITS

LARGEST = 4.0
"""The largest absolute value of a random number: masks with -3e38 and the like are replayed with smaller ones."""

_SPREADS = 3.0

ORDERED = ("argsort", "topk", "kthvalue", "mode", "median", "nanmedian", "argmax", "argmin", "max_pool2d_with_index")
"""Operators that order the elements of their first argument: which of two equal ones is first is not determined."""


class NotReplayable(ValueError):
    """An argument cannot be made again."""


def arrays_of(call: Call, seed: int) -> list[np.ndarray]:
    """An array for each tensor argument, in the order of Call.tensors(); real numbers in double precision, rounded to the type.

    Raises NotReplayable for a tensor of another type than numbers and bool.
    """
    generator = np.random.default_rng(seed)
    makers = [_distinct if call.operator in ORDERED and not place else _array for place in range(len(call.tensors()))]
    return [make(spec, generator) for make, spec in zip(makers, call.tensors(), strict=True)]


def _distinct(spec: TensorSpec, generator: np.random.Generator) -> np.ndarray:
    """Different numbers in any order, as far as the type has so many."""
    numbers = generator.permutation(math.prod(spec.shape)).reshape(spec.shape)
    return (
        rounded(LARGEST * (2 * numbers / max(1, numbers.size) - 1), spec.dtype)
        if spec.dtype in FLOATS
        else numbers.astype(spec.dtype)
    )


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """The nearest numbers that the type holds, in double precision. dtype: one of FLOATS."""
    if dtype != "bfloat16":
        return array.astype(dtype).astype("float64")
    fraction, exponent = np.frexp(array)
    steps = 2.0 ** (BITS[dtype] + 1)
    return np.ldexp(np.round(fraction * steps) / steps, exponent)


def tensor_of(array: np.ndarray, dtype: str) -> paddle.Tensor:
    """The array as a tensor of this type. The array holds numbers that the type holds exactly."""
    if dtype == "bfloat16":
        return paddle.to_tensor(array.astype("float32")).astype("bfloat16")
    return paddle.to_tensor(array.astype(dtype))


def numbers_of(tensor: paddle.Tensor) -> np.ndarray:
    """The elements of a tensor, real numbers in double precision."""
    with paddle.amp.auto_cast(enable=False):
        plain = tensor.detach()
        if str(plain.dtype) in ("paddle.float16", "paddle.bfloat16"):
            plain = plain.astype("float32")
    array = plain.numpy()
    return array.astype("float64") if array.dtype.kind == "f" else array


def dense(gradient: paddle.Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """As numbers_of(), of a gradient that may hold only some rows of this shape, some of them several times."""
    if not gradient.is_selected_rows():
        return numbers_of(gradient)
    whole = np.zeros(shape)
    np.add.at(whole, gradient.rows(), gradient.numpy().astype("float64"))
    return whole


def invoked(
    call: Call, tensors: Sequence[paddle.Tensor], place: Any, type_of: Callable[[str], str] = str, original: bool = False
) -> list[Any]:
    """Call the operator with these tensors; its results as a flat list.

    place: where a new tensor is made. type_of: replaces the names of types among the arguments. original: whether it is the one
    of recorder.ORIGINAL, and not what is in its place now.
    Raises NotReplayable when an argument cannot be made again.
    """
    given = iter(tensors)

    def argument(value: Any) -> Any:
        if isinstance(value, Unknown):
            raise NotReplayable(f"an argument is a {value.kind}")
        if isinstance(value, TensorSpec):
            return next(given)
        if isinstance(value, NamedType):
            return getattr(paddle, type_of(value.name))
        return place if isinstance(value, CurrentPlace) else value

    filled = call.changed(argument)
    current = getattr(OWNERS[call.owner], call.name)
    operator = ORIGINAL.get((call.owner, call.name), current) if original else current
    returned = operator(*filled.arguments, **dict(filled.named))
    return results_of(call.is_in_place, filled.arguments, returned)


def _array(spec: TensorSpec, generator: np.random.Generator) -> np.ndarray:
    drawn = _drawn(spec, generator)
    if spec.obeys == SORTED:
        drawn = np.sort(drawn, axis=-1)
    elif spec.obeys == SHARES:
        drawn = drawn / drawn.sum(axis=-1, keepdims=True)
    return rounded(drawn, spec.dtype) if spec.dtype in FLOATS else drawn


def _drawn(spec: TensorSpec, generator: np.random.Generator) -> np.ndarray:
    """The recorded elements; where they were not kept, some of the sample, or of the range."""
    if spec.values is not None:
        is_whole = spec.values.size == math.prod(spec.shape)
        values = spec.values.reshape(spec.shape) if is_whole else generator.choice(spec.values, spec.shape)
        return values.astype("float64") if spec.dtype in FLOATS else values
    if spec.dtype in FLOATS:
        return _reals(spec, generator)
    if spec.dtype == "bool" or (spec.dtype.startswith(("int", "uint")) and not math.prod(spec.shape)):
        return (generator.random(spec.shape) < 0.5).astype(spec.dtype)
    raise NotReplayable(f"an argument is a tensor of type {spec.dtype}")


def _reals(spec: TensorSpec, generator: np.random.Generator) -> np.ndarray:
    """Numbers of the recorded size and sign; without a record, normally distributed."""
    low, high = (-_SPREADS, _SPREADS) if spec.low is None or spec.high is None else (spec.low, spec.high)
    if not np.isfinite([low, high]).all():
        low, high = -LARGEST, LARGEST
    low, high = (float(np.clip(bound, -LARGEST, LARGEST)) for bound in (low, high))
    if spec.dtype == "float16":  # squares of small numbers are 0 there, and the gradient of rsqrt is infinite
        low, high = (max(low, 2.0**-6) if low >= 0 else min(low, -(2.0**-4))), max(high, 2.0**-4)
    if low >= 0:
        least = max(low, 1e-3 * high)
        return generator.uniform(least, max(high, least), spec.shape)
    return np.clip(generator.standard_normal(spec.shape) * max(-low, high) / _SPREADS, low, high)
