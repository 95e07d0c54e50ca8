"""Indices of tensors: reading and writing by index, with gradients, on grids beside numpy.

    check.grid("indexing.get", index_grids.reading(), *index_grids.RUN, level=level, seed=seed, means=...)

Reference implementation: numpy, applied in two steps, because Paddle applies integers and slices first and then the arrays
(numpy counts an integer beside an array as an array). All is compared to the bit, as operator_tester says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared import interesting, operator_tester
from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.chapters.shared.operator_tester import EMPTY, FLOATS, INTEGERS, LAYOUTS, OF_LAYOUTS, SHAPES, Rules, Shape
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one

Index = tuple[Any, ...]
"""Items as numpy takes them; an array stands for a tensor."""

TYPES = (*FLOATS, *INTEGERS, "bool")
"""Types of tensors that are indexed."""

# ----------------------------------------------------------------------------------------------------------- the indices


@dataclass(frozen=True)
class Kind:
    """A kind of index.

    make: of a generator and a shape the items. axes: how many axes the tensor needs. has_elements: whether its first axis
    needs elements. arrays: "" for none, "positions" or "mask". is_repeated: whether a position occurs twice.
    is_mixed: whether an array stands beside a slice.
    """

    make: Callable[[np.random.Generator, Shape], Index]
    axes: int = 1
    has_elements: bool = False
    arrays: str = ""
    is_repeated: bool = False
    is_mixed: bool = False


def _one(rng: np.random.Generator, size: int) -> int:
    return int(rng.integers(-size, size))


def _some(rng: np.random.Generator, size: int) -> np.ndarray:
    """At most three different positions, some of them counted from the end."""
    chosen = rng.permutation(size)[:3]
    return chosen - size * rng.integers(0, 2, len(chosen))


def _part(rng: np.random.Generator, size: int) -> slice:
    """All but one element at one end or at both; of a short axis all."""
    return slice(int(rng.integers(0, 2)), int(rng.integers(size - 1, size + 1))) if size > 2 else slice(0, size)


def _mask(rng: np.random.Generator, shape: Shape) -> np.ndarray:
    """A mask of this shape with one True or, where it can, two; and with False where it has more than one element."""
    mask = np.array(rng.random(shape) < 0.5)
    if mask.size:
        mask.flat[-2:] = True
        mask.flat[0] = mask.size == 1
    return mask


def _pairs(rng: np.random.Generator, shape: Shape) -> Index:
    return np.unravel_index(rng.permutation(shape[0] * shape[1])[:3], shape[:2])


INDICES = {
    "slice": Kind(lambda rng, shape: (_part(rng, shape[0]),)),
    "integer": Kind(lambda rng, shape: (_one(rng, shape[0]),), has_elements=True),
    "integer, slice": Kind(lambda rng, shape: (_one(rng, shape[0]), _part(rng, shape[1])), 2, has_elements=True),
    "step": Kind(lambda rng, shape: (slice(int(rng.integers(0, 2)), None, 2),)),
    "backwards": Kind(lambda rng, shape: (slice(None, None, -1),)),
    "backwards from within": Kind(lambda rng, shape: (slice(None), slice(max(0, shape[1] - 2), None, -1)), 2),
    "beyond the end": Kind(lambda rng, shape: (slice(max(0, shape[0] - 2), shape[0] + 7),)),
    "empty slice": Kind(lambda rng, shape: (slice(2, 2),)),
    "everything": Kind(lambda rng, shape: (Ellipsis,), 0),
    "new axis": Kind(lambda rng, shape: (None,), 0),
    "0-d tensor": Kind(lambda rng, shape: (np.array(_one(rng, shape[0])),), has_elements=True, arrays="positions"),
    "tensor": Kind(lambda rng, shape: (_some(rng, shape[0]),), has_elements=True, arrays="positions"),
    "repeated tensor": Kind(
        lambda rng, shape: (np.repeat(_some(rng, shape[0]), 2),), has_elements=True, arrays="positions", is_repeated=True
    ),
    "empty tensor": Kind(lambda rng, shape: (np.zeros(0, int),), arrays="positions"),
    "two tensors": Kind(_pairs, 2, has_elements=True, arrays="positions"),
    "all, tensor": Kind(lambda rng, shape: (slice(None), _some(rng, shape[1])), 2, arrays="positions", is_mixed=True),
    "integer, all, tensor": Kind(
        lambda rng, shape: (_one(rng, shape[0]), slice(None), _some(rng, shape[2])),
        3,
        has_elements=True,
        arrays="positions",
        is_mixed=True,
    ),
    "mask": Kind(lambda rng, shape: (_mask(rng, shape),), 0, arrays="mask"),
    "mask of rows": Kind(lambda rng, shape: (_mask(rng, shape[:1]),), arrays="mask"),
    "mask of rows, slice": Kind(
        lambda rng, shape: (_mask(rng, shape[:1]), _part(rng, shape[1])), 2, arrays="mask", is_mixed=True
    ),
    "all, mask": Kind(lambda rng, shape: (slice(None), _mask(rng, shape[1:2])), 2, arrays="mask", is_mixed=True),
    "all, all, mask": Kind(
        lambda rng, shape: (slice(None), slice(None), _mask(rng, shape[2:])), 3, arrays="mask", is_mixed=True
    ),
    "mask without True": Kind(lambda rng, shape: (np.zeros(shape[:1], bool),), arrays="mask"),
    "true": Kind(lambda rng, shape: (np.array(True),), 0, arrays="mask"),
}


def split(index: Index, ndim: int) -> tuple[Index, Index]:
    """The index as two, to be applied one after the other: the first without arrays, the second with nothing else."""
    given = sum(_axes(item) for item in index)
    rest: list[Any] = [slice(None)] * (ndim - given)
    position = next((place for place, item in enumerate(index) if item is Ellipsis), len(index))
    full = [*index[:position], *rest, *index[position + 1 :]]
    basic: list[Any] = []
    arrays: list[Any] = []
    for item in full:
        if isinstance(item, np.ndarray) and (item.ndim or item.dtype == bool):
            basic += [slice(None)] * _axes(item)
            arrays.append(item)
        else:
            is_integer = isinstance(item, (int, np.ndarray))
            basic.append(int(item) if is_integer else item)
            arrays += [] if is_integer else [slice(None)]
    return (*basic, Ellipsis), (*arrays, Ellipsis)


def _axes(item: Any) -> int:
    """How many axes of the tensor the item stands for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


POSITIONS: dict[str, Callable[[np.ndarray], Any]] = {
    "int64": lambda array: paddle.to_tensor(array),
    "int32": lambda array: paddle.to_tensor(array.astype("int32")),
    "list": lambda array: array.tolist(),
    "every other": interesting.INDEX_LAYOUTS["every other"],
    "backwards": interesting.INDEX_LAYOUTS["backwards"],
}
"""By name what stands for an array in Paddle's index; a mask is one of bool in any case, and "true" Python's in a list."""


def _index(rng: np.random.Generator, case: Case) -> tuple[Callable[[Any], np.ndarray], Any]:
    """What numpy selects of an array by the index, and the index for Paddle."""
    items = case.index.make(rng, case.shape)
    basic, arrays = split(items, len(case.shape))

    def convert(item: Any) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        return POSITIONS[case.positions](item)

    given = tuple(map(convert, items))
    return lambda array: np.asarray(np.asarray(array[basic])[arrays]), given if len(given) > 1 else given[0]


# ------------------------------------------------------------------------------------------------------ reading and writing

VALUES = ("same shape", "number", "0-d", "broadcast", "a large number")

GRADIENTS: dict[str, tuple[int, ...]] = {"none": (), "of x": (0,), "of the value": (1,), "of both": (0, 1)}
"""By name of what the gradient is wanted: 0 the tensor, 1 the value."""


def _read(case: Case) -> Compared:
    rng = case.rng()
    select, given = _index(rng, case)
    memory = case.layout.memory(case.elements(rng, case.shape, case.dtype), case.dtype)
    value, slopes = operator_tester.moved(lambda whole: select(case.layout.view(whole)))
    return operator_tester.computed(rng, case.dtype, lambda x: case.layout.of(x)[given], [memory], value, slopes)


def _write(case: Case) -> Compared:
    """The memory, where it must have changed and no gradient goes through a view, else the tensor."""
    rng = case.rng()
    select, given = _index(rng, case)
    memory = case.layout.memory(case.elements(rng, case.shape, case.dtype), case.dtype)
    places = case.layout.places(case.shape)
    elements = _elements(rng, case, select(places).shape)
    is_contiguous = case.layout is LAYOUTS["contiguous"]
    is_seen = is_contiguous or bool(case.strides and not case.layout.is_copy and not case.gradient and not on_sim())
    shown = np.arange(memory.size).reshape(memory.shape) if is_seen else places
    value, slopes = operator_tester.written(elements, select(places), shown)
    number = operator_tester.number_of(elements, case.dtype) if "number" in case.value else None
    assigned = [] if number is not None else [LAYOUTS["contiguous"].tensor(elements, case.dtype)]

    def call(x: paddle.Tensor, *assigned: paddle.Tensor) -> paddle.Tensor:
        start = x.clone()
        tensor = case.layout.of(start)
        tensor[given] = assigned[0] if assigned else number
        return start if is_seen else tensor

    return operator_tester.computed(rng, case.dtype, call, [memory, *assigned], value, slopes, {0, 1} - {*case.gradient})


def on_sim() -> bool:
    """Whether the device in use is simulated: there a write to a view of rows goes to a copy."""
    return str(paddle.get_device()).startswith("sim")


_LARGE = {"float64": 2**24 + 1, "int64": 2**24 + 1, "int32": 2**24 + 1}


def _elements(rng: np.random.Generator, case: Case, shape: Shape) -> np.ndarray:
    """What is assigned to a selection of this shape."""
    if case.value == "a large number":
        return np.asarray(_LARGE[case.dtype], "float64")
    if case.value == "number":
        return np.asarray(rng.integers(0, 2) if case.dtype == "bool" else rng.integers(2, 100), "float64")
    return case.elements(rng, {"0-d": (), "broadcast": shape[-1:]}.get(case.value, shape), case.dtype)


def measure(case: Case) -> Compared:
    """Read or write, whichever grid the case is of."""
    with operator_tester.strides(case.strides):
        return _write(case) if "value" in case.labels else _read(case)


def _kernels(case: Case) -> list[tuple[str, str, str]]:
    """Which kernels the case may use besides those that every device has: names, types, "gradient" for a gradient's kernel."""
    used = [("set_value", ""), *([("gather_nd", ""), ("gather", ""), ("index_put", "")] if case.index.arrays else [])]
    if case.labels["index"] == "new axis":
        used.append(("unsqueeze", ""))
    if not case.strides:
        used.append(("strided_slice", "gradient"))
    return [(kernel, case.dtype, form) for kernel, form in used]


RUN = one_by_one(measure), add_row_of(_kernels)

RULES: Rules = {
    **OF_LAYOUTS,
    "an index needs its axes, and an integer an element": lambda index, shape: (
        len(shape) < index.axes or (index.has_elements and 0 in shape)
    ),
    "a list without items has no type": lambda index, shape, positions: (
        positions == "list" and ((0 in shape and index is not INDICES["true"]) or index is INDICES["empty tensor"])
    ),
    "only a tensor or a mask has a type, and a mask is no int32": lambda index, positions: (
        positions != "int64" and (not index.arrays or (index.arrays == "mask" and positions == "int32"))
    ),
}

RULES_OF_WRITING: Rules = {
    "only floats have gradients": lambda dtype, gradient: bool(gradient) and dtype not in FLOATS,
    "a number has no gradient": lambda value, gradient: 1 in gradient and "number" in value,
    "a large number needs its digits": lambda dtype, value: value == "a large number" and dtype not in _LARGE,
    "Paddle 3.3.1 leaves the gradient of a value unset where nothing is written": lambda shape, gradient: (
        0 in shape and 1 in gradient
    ),
    "values for one place have no order": lambda index, value, gradient: (
        index.is_repeated and (value not in ("number", "0-d", "a large number") or 1 in gradient)
    ),
}
"""Rules for writing, besides those for reading."""

CRASHES: Rules = {
    "Paddle 3.3.1 writes by a tensor beside the memory of a view": lambda index, layout, strides: (
        bool(index.arrays) and not layout.is_contiguous and bool(strides)
    ),
    "Paddle 3.3.1 writes the gradient of a value, of all types but float32, beside its memory": lambda index, dtype, gradient: (
        bool(index.arrays) and 1 in gradient and dtype != "float32"
    ),
    "Paddle 3.3.1 loses a write by a tensor beside a slice without stride kernels": lambda index, strides: (
        index.is_mixed and not strides
    ),
}
"""What may end the process: index_defects shows each in a process of its own."""

CRASHES_ON_SIM: Rules = {
    "on simulated cards the gradient of a write without stride kernels crashes": lambda gradient, strides: (
        bool(gradient) and not strides
    ),
}


AXES: dict[str, Any] = {
    "index": INDICES,
    "dtype": TYPES,
    "shape": SHAPES,
    "layout": LAYOUTS,
    "positions": tuple(POSITIONS),
    "elements": interesting.ELEMENTS,
    "strides": {"1": 1, "0": 0},
}
"""Those of reading and of writing."""


def reading() -> Grid:
    """The grid of reading by index."""
    further: Rules = {
        **interesting.FEW_AXES,
        **interesting.NO_SLOPE_OF_REPEATED,
        "without stride kernels there is no as_strided": lambda layout, strides: layout in interesting.REPEATED and not strides,
    }
    return Grid(AXES, RULES, EMPTY, each="index").with_further(interesting.OF_SHAPES, further)


def writing(device: str) -> Grid:
    """The grid of assigning by index on this device: cpu, gpu, xpu or sim."""
    rules = {**RULES, **RULES_OF_WRITING, **CRASHES, **(CRASHES_ON_SIM if device == "sim" else {})}
    grid = Grid({**AXES, "value": VALUES, "gradient": GRADIENTS}, rules, EMPTY, each="index")
    return grid.with_further(interesting.OF_SHAPES, {**interesting.FEW_AXES, **interesting.NOT_REPEATED})
