"""Sizes, layouts, values and positions at which kernels go wrong, once for all grids of operators.

    Grid(axes, rules, each="operator").with_further(interesting.OF_NUMBERS, interesting.RULES | {...})

The grids of chapters 17 and 18 have few plain values on each axis, so that every pair of them is in some case. Here is what
lies around the borders of kernels: blocks, vectors, counters, caches, and numbers that cancel, are equal, or alone.
These grids try all of it with each operator at standard, a sample at quick; `xpulab search` draws from it without end.
What does not apply to an operator, and why, its grid says in a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.operator_tester import FLOATS, Layout, Rules, Shape, drawn
from xpulab.chapters.shared.operator_tester import LAYOUTS as OWN_LAYOUTS
from xpulab.reference.bounds import HALVES

AROUND = (1, 2, 3, 8, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 768, 1023, 1024, 1025, 4097)
"""Lengths of an axis around those of blocks, and some that are divisible by three."""

MOST = 1 << 17
"""So many elements, or products of two, a case has at most."""

_SEED = 17


def _shapes() -> dict[str, Shape]:
    """Of each length a single axis, the last and the first of two, the middle of three; then what is particular."""
    rng = np.random.default_rng(_SEED)
    others = [(int(first), int(last)) for first, last in rng.choice((1, 2, 3, 5, 7, 12), (len(AROUND), 2))]
    around = [
        shape
        for size, (first, last) in zip(AROUND, others, strict=True)
        for shape in ((size,), (first, size), (size, last), (first, size, last))
    ]
    pairs = [(int(rows), int(columns)) for rows, columns in product(AROUND, AROUND) if rows > 1 and rows * columns <= MOST]
    some = [pairs[place] for place in rng.permutation(len(pairs))[: 2 * len(AROUND)]]
    particular = [(0,), (3, 0, 2), (1, 1, 1), (2, 1, 3, 1), (2, 3, 1, 2, 2), (2, 1, 2, 3, 1, 2), (2, 1, 3, 1, 2, 1, 2)]
    counted = [(65_537,), (2, 65_536), (65_537, 1), (300, 7, 31)]
    return {str(shape): shape for shape in (*around, *some, *particular, *counted)}


SHAPES = _shapes()
"""By name: one axis to seven, lengths of 0 and 1, more than 65,535 elements."""


def _sizes() -> dict[str, Shape]:
    """Rows, summed terms and columns of products: each length at each of the three places, beside two drawn ones."""
    rng = np.random.default_rng(_SEED)
    found = {}
    for size, place in product(AROUND, range(3)):
        others = [int(each) for each in rng.choice([each for each in AROUND if each * each * size <= 64 * MOST or each < 9], 2)]
        sizes = (*others[:place], size, *others[place:])
        found[" x ".join(map(str, sizes))] = sizes
    return found


SIZES = _sizes()
"""By name m, k and n of products."""


def _lengths_of_both() -> dict[str, tuple[int, int]]:
    """Queries and keys of attention, equal and unequal, from one to a few blocks."""
    lengths = [size for size in AROUND if size <= 257]
    rng = np.random.default_rng(_SEED)
    pairs = {(size, size) for size in lengths} | {(1, size) for size in lengths} | {(size, 1) for size in lengths[:9]}
    pairs |= {(int(queries), int(keys)) for queries, keys in rng.choice(lengths, (32, 2))}
    return {f"{queries} x {keys}": (queries, keys) for queries, keys in sorted(pairs)}


LENGTHS = _lengths_of_both()
"""By name how many queries and keys."""


def _middle(whole: Any) -> Any:
    """The first two axes exchanged, where there are two."""
    return whole.transpose([1, 0, *range(2, whole.ndim)]) if whole.ndim > 1 else whole


def _repeated(whole: Any, axis: int) -> Any:
    """What is first along the axis, in the place of all."""
    steps = [int(np.prod(whole.shape[place + 1 :])) for place in range(whole.ndim)]
    steps[axis] = 0
    if isinstance(whole, np.ndarray):
        return np.lib.stride_tricks.as_strided(whole, whole.shape, [step * whole.itemsize for step in steps])
    return paddle.as_strided(whole, whole.shape, steps)


LAYOUTS = {
    "two axes exchanged": Layout(lambda shape: (shape[1], shape[0], *shape[2:]) if len(shape) > 1 else shape, _middle),
    "every third column": Layout(lambda shape: (*shape[:-1], 3 * shape[-1]), lambda whole: whole[..., 1::3]),
    "columns from the third": Layout(lambda shape: (*shape[:-1], shape[-1] + 3), lambda whole: whole[..., 3:]),
    "columns of other rows": Layout(
        lambda shape: (2 * shape[0], *shape[1:-1], shape[-1] + 1) if len(shape) > 1 else (2 * shape[0],),
        lambda whole: whole[1::2, ..., 1:] if whole.ndim > 1 else whole[1::2],
    ),
    "backwards": Layout(lambda shape: shape, lambda whole: whole[::-1]),
    "columns backwards": Layout(lambda shape: (*shape[:-1], shape[-1] + 1), lambda whole: whole[..., :0:-1]),
    "the same row": Layout(lambda shape: shape, lambda whole: _repeated(whole, 0)),
    "the same column": Layout(lambda shape: shape, lambda whole: _repeated(whole, -1)),
}
"""By name views whose first element is not aligned, or whose steps are not those of a transposed matrix, negative or 0.

Paddle's expand copies, so the steps of 0 are those of as_strided.
"""

REPEATED = LAYOUTS["the same row"], LAYOUTS["the same column"]
"""Those in which several elements share a place: nothing can be written to them one by one."""


Values = Callable[[np.random.Generator, Shape], np.ndarray]


def _equal(times: int) -> Values:
    """Numbers between 1 and 3 that each occur so many times, in any order."""

    def values(rng: np.random.Generator, shape: Shape) -> np.ndarray:
        number = int(np.prod(shape))
        return (1 + 2 * (rng.permutation(number) // times * times) / max(1, number)).reshape(shape)

    return values


def _one_differs(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    values = np.full(shape, 0.5)
    if values.size:
        values.flat[rng.integers(values.size)] = 3.0
    return values


def _cancelling(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Alternating signs of nearly the same number."""
    return (1 + rng.integers(0, 8, shape) / 256) * (1 - 2 * (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2))


def _signed_zeros(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Zeros of both signs, and a few other numbers."""
    return np.where(rng.random(shape) < 0.75, rng.choice([0.0, -0.0], shape), rng.standard_normal(shape))


def _masked_in_part(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """Numbers of which half are -inf; none of the last row and of the last column."""
    numbers = rng.standard_normal(shape)
    values = np.where(rng.random(shape) < 0.5, -np.inf, numbers)
    if values.size:
        for place in (np.s_[..., -1:], np.s_[-1:]) if shape else (np.s_[...],):
            values[place] = numbers[place]
    return values


def _masked(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """The same, and of several rows all of the first one."""
    values = _masked_in_part(rng, shape)
    if len(shape) > 1 and shape[0] > 1:
        values[0] = -np.inf
    return values


NOT_FINITE: dict[str, Values] = {
    "the ends of the type": lambda rng, shape: rng.choice([np.inf, -np.inf, 1.0, 2.0, 3.0], shape),
    "the least of the type": lambda rng, shape: np.full(shape, -np.inf),
    "the largest of the type": lambda rng, shape: np.full(shape, np.inf),
    "masked": _masked,
    "masked in part": _masked_in_part,
}
"""By name values of operators for which infinities mean something; of an integer type the least and the largest."""

VALUES: dict[str, Values] = {
    "all equal": lambda rng, shape: np.full(shape, 1.25),
    "equal twice": _equal(2),
    "equal three times": _equal(3),
    "equal 300 times": _equal(300),
    "one differs": _one_differs,
    "cancelling": _cancelling,
    "zeros of both signs": _signed_zeros,
    "powers of two": lambda rng, shape: rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.integers(-12, 6, shape),
    "sparse": lambda rng, shape: np.where(rng.random(shape) < 0.02, rng.standard_normal(shape), 0.0),
}
"""By name values of a shape."""

POSITIONS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "descending": lambda rng, size: np.arange(size)[::-1].copy(),
    "from the end": lambda rng, size: rng.permutation(size)[:33] - size,
    "all the same": lambda rng, size: np.full(33, rng.integers(0, size)),
    "the first and the last": lambda rng, size: np.array([0, size - 1, 0]),
    "every one, shuffled": lambda rng, size: rng.permutation(size),
    "300 times each": lambda rng, size: np.repeat(rng.permutation(size)[:2], 300),
    "70,000": lambda rng, size: rng.integers(0, size, 70_000 if size < 65 else 3),
}
"""By name positions of an axis of this size."""


def _particular(rng: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    of_floats = [np.nan, -0.0, 65504.0, 2.0**-16, 2.0**-130, -(2.0**-24)] if dtype in FLOATS else []
    return drawn(rng, shape, dtype) if dtype == "bool" else rng.choice([np.inf, -np.inf, 0.0, -1.0, 1.0, *of_floats], shape)


ELEMENTS = {"digits": drawn, "particular": _particular}
"""By name elements that are moved as they are: with many digits; zeros of both signs, the ends of the type, denormals, NaN."""

INDEX_LAYOUTS: dict[str, Callable[[np.ndarray], paddle.Tensor]] = {
    "side by side": paddle.to_tensor,
    "every other": lambda array: paddle.to_tensor(np.repeat(array, 2, -1))[..., ::2] if array.ndim else paddle.to_tensor(array),
    "backwards": lambda array: paddle.to_tensor(array[..., ::-1].copy())[..., ::-1] if array.ndim else paddle.to_tensor(array),
}
"""By name how the elements of an index or a mask lie in a memory."""

WITH_ZEROS = (VALUES["zeros of both signs"], VALUES["sparse"])

OF_SHAPES: Mapping[str, Any] = {"shape": SHAPES, "layout": LAYOUTS}
OF_NUMBERS = {**OF_SHAPES, "values": VALUES}
OF_ENDS = {**OF_SHAPES, "values": {**VALUES, **NOT_FINITE}}

PADDINGS = {"every key": lambda keys: np.zeros(keys, bool)}
"""As those of attention, of a row of the batch that is padding and nothing else."""

CLASSES = {str(size): size for size in AROUND if size > 1}
"""Of cross entropy."""

RULES: Rules = {
    "Paddle slices at most six axes": lambda shape, layout: len(shape) > 6 and layout is not OWN_LAYOUTS["contiguous"],
}
"""What cannot go together, of grids that have these axes."""

OF_NOTHING: Rules = {
    "an axis without elements has a sum, and nothing else": lambda operator, shape, axis: (
        isinstance(axis, int) and bool(shape) and not shape[axis] and operator not in ("sum", "cumsum")
    )
}

NO_MASKED_INTEGERS: Rules = {
    "only floating numbers are masked": lambda dtype, values: values in (_masked, _masked_in_part) and dtype not in FLOATS
}

FEW_AXES: Rules = {"Paddle slices at most six axes": lambda shape: len(shape) > 6}

NOT_REPEATED: Rules = {"nothing is written to elements that share a place": lambda layout: layout in REPEATED}

NO_SLOPE_OF_REPEATED: Rules = {
    "Paddle 3.3.1 counts an element that as_strided shows twice once in its gradient": lambda layout, dtype: (
        layout in REPEATED and dtype in FLOATS
    )
}


_MANY = {POSITIONS["70,000"]: 64, POSITIONS["300 times each"]: 4097}


def are_too_many(shape: Shape, dtype: str, positions: Any) -> bool:
    """Whether so many positions are of rows that are not short, or of a type of 16 bits, which holds no sums of so many."""
    return positions in _MANY and (math.prod(shape) > _MANY[positions] or dtype in HALVES)
