"""The tester of operators: what an operator gave on the device in use, beside its formula in double precision and a bound.

    def measure(case: Case) -> Compared:
        x = case.layout.tensor(case.rng().standard_normal(case.shape), case.dtype)
        return computed(case.rng(), case.dtype, paddle.exp, [x], lambda x: (np.exp(x), np.exp(x)))

    check.grid("numerics.functions", grid, one_by_one(measure), add_row, level=level, seed=seed, means=...)

All grids of chapters 17 and 18 are made so. Formulas get the very numbers that the tensors hold. The gradient is that of
sum(result * weight) with random weights, so that a gradient in a wrong place or order is another gradient. Operators that only
move elements have exact formulas, `moved` and `written`; their elements and gradients are compared to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.device import flag_set
from xpulab.checks.compared import Compared, numbers
from xpulab.reference.bounds import HALVES, bound, is_beyond

Shape = tuple[int, ...]
Rules = dict[str, Callable[..., bool]]

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTEGERS = ("int64", "int32")

SHAPES: tuple[Shape, ...] = ((6, 5), (7,), (), (3, 4, 5), (5, 1), (0, 4), (2, 1025), (1025, 3))
"""Rows and columns; one axis; none; three; one column; no element; a long axis; many rows."""

EMPTY = {"shape": ["(0, 4)"]}
"""A case without elements says nothing about values, layouts and types."""


def strides(flag: int) -> AbstractContextManager[None]:
    """Inside the block FLAGS_use_stride_kernel has this value, 1 or 0; with 0 views are copies. Afterwards it is as before."""
    return flag_set("FLAGS_use_stride_kernel", bool(flag))


# ---------------------------------------------------------------------------------------------------------------- layouts

_BESIDE = 77.0
"""What stands in a memory beside the elements of a tensor."""


@dataclass(frozen=True)
class Layout:
    """How a tensor looks at a memory.

    whole: the shape of the memory, of the tensor's shape. view: the tensor, of the memory, an array or a tensor.
    is_copy: whether the view is copied then. is_contiguous: whether the elements are side by side in their order.
    """

    whole: Callable[[Shape], Shape]
    view: Callable[[Any], Any]
    is_copy: bool = False
    is_contiguous: bool = False

    def memory(self, array: np.ndarray, dtype: Any) -> paddle.Tensor:
        """The memory of a tensor of this type with these elements, on the device in use; infinite integers: see integers()."""
        array = integers(array, dtype) if dtype in INTEGERS else array
        whole = np.full(self.whole(array.shape), _BESIDE, array.dtype)
        self.view(whole)[...] = array
        return paddle.to_tensor(whole).astype(dtype)

    def of(self, memory: paddle.Tensor) -> paddle.Tensor:
        """The tensor that looks at this memory."""
        return self.view(memory).contiguous() if self.is_copy else self.view(memory)

    def tensor(self, array: np.ndarray, dtype: Any) -> paddle.Tensor:
        """A tensor of this type with these elements."""
        return self.of(self.memory(array, dtype))

    def tensor_of(self, array: np.ndarray) -> paddle.Tensor:
        """A tensor of the array's own type with these elements; no kernel converts them."""
        whole = np.ones(self.whole(array.shape), array.dtype)
        self.view(whole)[...] = array
        return self.of(paddle.to_tensor(whole))

    def places(self, shape: Shape) -> np.ndarray:
        """The place in the memory of each element of a tensor of this shape."""
        whole = self.whole(shape)
        return np.asarray(self.view(np.arange(np.prod(whole, dtype=int)).reshape(whole)))


def _transposed(whole: Any) -> Any:
    return whole.transpose(list(range(whole.ndim))[::-1])


LAYOUTS = {
    "contiguous": Layout(lambda shape: shape, lambda whole: whole, is_contiguous=True),
    "transposed": Layout(lambda shape: shape[::-1], _transposed),
    "columns": Layout(lambda shape: (*shape[:-1], shape[-1] + 2), lambda whole: whole[..., 1:-1]),
    "rows": Layout(lambda shape: (shape[0] + 2, *shape[1:]), lambda whole: whole[1:-1], is_contiguous=True),
    "strided": Layout(lambda shape: (2 * shape[0], *shape[1:]), lambda whole: whole[::2]),
    "made contiguous": Layout(lambda shape: shape[::-1], _transposed, is_copy=True, is_contiguous=True),
}
"""By name; interesting.py has more."""

OF_LAYOUTS: Rules = {
    "a tensor without axes has no layout": lambda shape, layout: not shape and layout is not LAYOUTS["contiguous"],
    "an empty tensor has no layout": lambda shape, layout: 0 in shape and layout is not LAYOUTS["contiguous"],
    "one axis cannot be transposed": lambda shape, layout: len(shape) == 1 and layout.view is _transposed,
}
"""Rules that all grids with these layouts have."""

# ---------------------------------------------------------------------------------------------------------------- formulas

Right = tuple[np.ndarray, np.ndarray | None]
"""What is right, and how large the terms are that rounding may change; None where nothing may be rounded."""

Value = Callable[..., Right]
"""Of the exact inputs."""

Slopes = Callable[..., Sequence[Right]]
"""Of the weight of the result and the exact inputs: the gradient of each input."""


def moved(formula: Callable[[np.ndarray], Any]) -> tuple[Value, Slopes]:
    """Value and gradient of an operator that moves elements. formula: in numpy, puts elements or 0 wherever it does."""

    def value(x: np.ndarray) -> Right:
        return np.asarray(formula(x)), None

    def slopes(weight: np.ndarray, x: np.ndarray) -> list[Right]:
        places = np.asarray(formula(np.arange(1, x.size + 1).reshape(x.shape)))
        slope = np.zeros(x.size + 1)
        np.add.at(slope, places.ravel(), weight.ravel())
        return [(slope[1:].reshape(x.shape), None)]

    return value, slopes


COMBINED: dict[str, Any] = {"add": np.add, "mul": np.multiply, "amax": np.maximum, "amin": np.minimum}
"""By name how elements that are written are combined with each other and with what is there."""

_ALONE = {"add": 0, "mul": 1, "amax": -np.inf, "amin": np.inf}


def written(
    elements: np.ndarray,
    targets: np.ndarray,
    shown: np.ndarray,
    how: str = "set",
    sources: np.ndarray | None = None,
    with_memory: bool = True,
) -> tuple[Value, Slopes]:
    """Value and gradients of an operator that writes elements to a memory; the elements may be an input, too.

    targets: places in the memory. shown: the places that the result consists of. how: "set", or one of COMBINED, of which the
    extremes have no gradient here. with_memory: whether they are combined with what is there, too.
    sources: which element goes to each target; by default the elements are broadcast to the shape of the targets.
    """
    if sources is None:
        sources = np.broadcast_to(np.arange(elements.size).reshape(elements.shape), targets.shape)

    def value(memory: np.ndarray, elements: np.ndarray = elements) -> Right:
        after = memory.ravel().copy()
        if how == "set":
            after[targets] = elements.ravel()[sources]
            return after[shown], None
        if not with_memory:
            after = after.astype("float64")
            after[targets] = _ALONE[how]
        COMBINED[how].at(after, targets, elements.ravel()[sources])
        return after[shown], None

    def slopes(weight: np.ndarray, memory: np.ndarray, elements: np.ndarray = elements) -> list[Right]:
        of_memory, of_elements = np.zeros(memory.size), np.zeros(elements.size)
        of_memory[shown] = weight
        of_targets = of_memory[targets]
        if how == "mul":  # no element is 0
            after = memory.ravel() * 1.0
            after[targets] = memory.ravel()[targets] if with_memory else 1
            np.multiply.at(after, targets, elements.ravel()[sources])
            of_targets = of_targets * after[targets] / elements.ravel()[sources]
            of_memory = of_memory * after / memory.ravel()
        np.add.at(of_elements, sources, of_targets)
        if how == "set" or not with_memory:
            of_memory[targets] = 0
        return [(of_memory.reshape(memory.shape), None), (of_elements.reshape(elements.shape), None)]

    return value, slopes


def drawn(rng: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    """Elements that use the digits of the type, so that one that went through a smaller type is another one."""
    if dtype in FLOATS:
        return rng.standard_normal(shape)
    limit = {"bool": 1, "int32": 2**31 - 1}.get(dtype, 2**53)  # integers up to 2^53 are exact in double precision
    return np.asarray(rng.integers(0 if dtype == "bool" else -limit, limit + 1, shape), "float64")


def integers(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers without their fractions, as int64; infinite ones are the least and the largest of the type."""
    is_end, ends = np.isinf(values), np.iinfo(dtype)
    return np.where(is_end, np.where(values > 0, ends.max, ends.min), np.where(is_end, 0, values).astype("int64"))


def number_of(element: np.ndarray, dtype: str) -> float:
    """The element as a number of Python's, of the kind of this type."""
    return (bool if dtype == "bool" else int if dtype in INTEGERS else float)(element)


# ------------------------------------------------------------------------------------------------------------- comparison

_NEGATIVE_ZERO = 3e300

_SUMMED = 1025
"""So many weights of 1 and -1 have a sum that types of 16 bits hold."""


@np.errstate(divide="ignore", invalid="ignore")  # formulas of numbers that are not finite
def computed(
    rng: np.random.Generator,
    dtype: str,
    call: Callable[..., Any],
    given: Sequence[paddle.Tensor],
    value: Value,
    slopes: Slopes | None = None,
    frozen: Collection[int] = (),
    kept: int | None = None,
    composed: bool = False,
) -> Compared:
    """Call an operator on the device in use, and its gradients, beside the formulas.

    slopes: None for an operator without gradients; integers have none either. frozen: the places of inputs that want no
    gradient. kept, composed: as for bounds.bound. Raises TypeError where an operator that only moves elements changes the type.
    """
    tensors = [tensor.detach() for tensor in given]
    exact = [tensor.numpy() if dtype in INTEGERS else tensor.astype("float64").numpy() for tensor in tensors]
    wanted = [place for place in range(len(tensors)) if place not in frozen] if slopes and dtype in FLOATS else []
    for place, tensor in enumerate(tensors):
        tensor.stop_gradient = place not in wanted
    result = call(*tensors)
    found, right = [result], [value(*exact)]
    is_exact = right[0][1] is None
    if is_exact and result.dtype != tensors[0].dtype:
        raise TypeError(f"the result has the type {result.dtype}, not {tensors[0].dtype}")
    if slopes and wanted:
        numbers_of_weight = _exact_weights(rng, result.shape, dtype) if is_exact else rng.uniform(0.5, 1.5, result.shape)
        weight = paddle.to_tensor(numbers_of_weight).astype(result.dtype)
        sources = [tensors[place] for place in wanted]
        gradients = paddle.grad([result], sources, [weight], allow_unused=True)
        found += [paddle.zeros_like(of) if slope is None else slope for slope, of in zip(gradients, sources, strict=True)]
        of_all = slopes(weight.astype("float64").numpy(), *exact)
        right += [of_all[place] for place in wanted]
    return compared([tensor.astype("float64").numpy() for tensor in found], right, dtype, kept, composed)


def _exact_weights(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    """Weights whose sums are exact in the type; those of more than 16 bits are positive, so that no sum is 0 by chance.

    Of a type of 16 bits only some of many are not 0.
    """
    if dtype not in HALVES:
        return np.asarray(rng.integers(1, 5, shape), "float64")
    few = rng.random(shape) < _SUMMED / max(1, math.prod(shape))
    return np.asarray(rng.integers(-1, 2, shape) * few, "float64")


def compared(
    found: Sequence[np.ndarray], right: Sequence[Right], dtype: str, kept: int | None = None, composed: bool = False
) -> Compared:
    """The result and the gradients of an operator, each with the bound of bounds.bound, or to the bit where nothing is rounded.

    Gradients are always composed. Numbers beyond a half type must be infinite; a result that is has no gradient. What must be
    infinite or NaN is compared as such, and so is the sign of a zero that is moved.
    """
    names = ["result", *(f"gradient {place}" for place in range(1, len(right)))]
    got = dict(zip(names, found, strict=True))
    exact = {name: np.asarray(each, "float64") for name, (each, _) in zip(names, right, strict=True)}
    bounds = {
        name: bound(
            exact[name], np.where(np.isfinite(terms), terms, np.abs(exact[name])), dtype, kept, composed or name != "result"
        )
        for name, (_, terms) in zip(names, right, strict=True)
        if terms is not None
    }
    if not bounds:
        of_names = {"result": _with_signs, **dict.fromkeys(names[1:], numbers)}
        return Compared(*({name: of_names[name](each) for name, each in values.items()} for values in (got, exact)))
    if dtype in HALVES and all(got[name].shape == np.shape(exact[name]) for name in names):
        was_infinite = np.isinf(got["result"]).any()
        got = {name: np.where(is_beyond(got[name], exact[name], dtype), exact[name], got[name]) for name in names}
        if was_infinite and not np.isinf(got["result"]).any():
            names = ["result"]
    for name in names:
        if not (is_finite := np.isfinite(exact[name])).all():
            got[name], exact[name] = numbers(got[name]), numbers(exact[name])
            bounds[name] = np.where(is_finite, bounds[name], 1.0)
    return Compared({name: got[name] for name in names}, {name: exact[name] for name in names}, bounds)


def _with_signs(values: np.ndarray) -> np.ndarray:
    """As compared.numbers, with a number of its own for a negative zero."""
    return np.where((values == 0) & np.signbit(values), _NEGATIVE_ZERO, numbers(values))
