"""Indices of tensors: reading and writing by index, with gradients, on grids beside numpy.

    check.grid("indexing.get", index_grids.reading(), *index_grids.RUN, level=level, seed=seed, means=...)

Reference implementation: numpy, applied in two steps, because Paddle applies integers and slices first and then the arrays
(numpy counts an integer beside an array as an array). It indexes the places that the elements have in memory, so one formula
is right for every layout. Elements, gradients and sums are exact in their types, and compared to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid, one_by_one

Shape = tuple[int, ...]
Index = tuple[Any, ...]
"""Items as numpy takes them; an array stands for a tensor."""

STRIDE_FLAG = "FLAGS_use_stride_kernel"

FLOATS = ("float32", "float64", "bfloat16", "float16")
TYPES = (*FLOATS, "int64", "int32", "bool")
"""Types of tensors that are indexed."""

SHAPES: tuple[Shape, ...] = ((4, 6), (7,), (3, 4, 5), (), (5, 1), (0, 4), (2, 1025))
"""Rows and columns; one axis; three; none; an axis of length 1; no element; a long axis."""

EMPTY = {"shape": ["(0, 4)"]}
"""A case without elements says nothing about values, layouts and types."""


@contextmanager
def strides(flag: int) -> Iterator[None]:
    """Inside the block FLAGS_use_stride_kernel has this value, 1 or 0; with 0 views are copies. Afterwards it is as before."""
    before = paddle.get_flags(STRIDE_FLAG)
    paddle.set_flags({STRIDE_FLAG: bool(flag)})
    try:
        yield
    finally:
        paddle.set_flags(before)


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
    "integer": Kind(lambda rng, shape: (int(rng.integers(0, shape[0])),), has_elements=True),
    "negative integer": Kind(lambda rng, shape: (int(rng.integers(-shape[0], 0)),), has_elements=True),
    "an integer for each axis": Kind(lambda rng, shape: tuple(_one(rng, size) for size in shape), has_elements=True),
    "integer, slice": Kind(lambda rng, shape: (_one(rng, shape[0]), _part(rng, shape[1])), 2, has_elements=True),
    "step": Kind(lambda rng, shape: (slice(int(rng.integers(0, 2)), None, 2),)),
    "backwards": Kind(lambda rng, shape: (slice(None, None, -1),)),
    "backwards from within": Kind(lambda rng, shape: (slice(None), slice(max(0, shape[1] - 2), None, -1)), 2),
    "beyond the end": Kind(lambda rng, shape: (slice(max(0, shape[0] - 2), shape[0] + 7),)),
    "empty slice": Kind(lambda rng, shape: (slice(2, 2),)),
    "everything": Kind(lambda rng, shape: (Ellipsis,), 0),
    "ellipsis, integer": Kind(lambda rng, shape: (Ellipsis, _one(rng, shape[-1]))),
    "new axis": Kind(lambda rng, shape: (None,), 0),
    "new axis, slice": Kind(lambda rng, shape: (None, _part(rng, shape[0]))),
    "0-d tensor": Kind(lambda rng, shape: (np.array(_one(rng, shape[0])),), has_elements=True, arrays="positions"),
    "tensor": Kind(lambda rng, shape: (_some(rng, shape[0]),), has_elements=True, arrays="positions"),
    "2-d tensor": Kind(lambda rng, shape: (_some(rng, shape[0])[:, None],), has_elements=True, arrays="positions"),
    "repeated tensor": Kind(
        lambda rng, shape: (np.repeat(_some(rng, shape[0]), 2),), has_elements=True, arrays="positions", is_repeated=True
    ),
    "empty tensor": Kind(lambda rng, shape: (np.zeros(0, int),), arrays="positions"),
    "two tensors": Kind(_pairs, 2, has_elements=True, arrays="positions"),
    "tensor, slice": Kind(
        lambda rng, shape: (_some(rng, shape[0]), _part(rng, shape[1])), 2, has_elements=True, arrays="positions", is_mixed=True
    ),
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
    "mask of two axes, slice": Kind(
        lambda rng, shape: (_mask(rng, shape[:2]), _part(rng, shape[2])), 3, arrays="mask", is_mixed=True
    ),
    "all, mask": Kind(lambda rng, shape: (slice(None), _mask(rng, shape[1:2])), 2, arrays="mask", is_mixed=True),
    "all, all, mask": Kind(
        lambda rng, shape: (slice(None), slice(None), _mask(rng, shape[2:])), 3, arrays="mask", is_mixed=True
    ),
    "mask without True": Kind(lambda rng, shape: (np.zeros(shape[:1], bool),), arrays="mask"),
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
}
"""By name what stands for an array in Paddle's index; a mask is one of bool in any case."""


# ----------------------------------------------------------------------------------------------------------- the tensors


@dataclass(frozen=True)
class Layout:
    """How a tensor of this shape looks at a memory. whole: the shape of the memory. view: of the whole, of numpy or Paddle.

    Paddle copies an expanded tensor, so a broadcast layout does not exist.
    """

    whole: Callable[[Shape], Shape]
    view: Callable[[Any], Any]
    is_copy: bool = False
    is_contiguous: bool = False


def _transposed(whole: Any) -> Any:
    return whole.transpose(list(range(whole.ndim))[::-1])


LAYOUTS = {
    "contiguous": Layout(lambda shape: shape, lambda whole: whole, is_contiguous=True),
    "transposed": Layout(lambda shape: shape[::-1], _transposed),
    "columns": Layout(lambda shape: (*shape[:-1], shape[-1] + 2), lambda whole: whole[..., 1:-1]),
    "rows": Layout(lambda shape: (shape[0] + 2, *shape[1:]), lambda whole: whole[1:-1], is_contiguous=True),
    "strided": Layout(lambda shape: (2 * shape[0], *shape[1:]), lambda whole: whole[::2]),
    "made contiguous": Layout(
        lambda shape: shape[::-1],
        lambda whole: np.ascontiguousarray(_transposed(whole))
        if isinstance(whole, np.ndarray)
        else _transposed(whole).contiguous(),
        is_copy=True,
        is_contiguous=True,
    ),
}

VALUES = ("same shape", "number", "0-d", "broadcast", "of another type", "a large number", "itself, backwards")


def drawn(rng: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    """Elements that use all digits of the type, so that one that went through a smaller type is another."""
    if dtype == "bool":
        return np.array(rng.integers(0, 2, shape) == 1)
    if dtype == "bfloat16":
        return to_numpy(tensor_of(rng.standard_normal(shape), dtype))
    if dtype in FLOATS:
        return np.asarray(rng.standard_normal(shape), dtype)
    limit = np.iinfo(dtype).max
    return np.asarray(rng.integers(-limit, limit, shape), dtype)


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """The elements as an array; bfloat16, which numpy lacks, as float32."""
    return tensor.astype("float32").numpy() if tensor.dtype == paddle.bfloat16 else tensor.numpy()


def tensor_of(array: np.ndarray, dtype: Any) -> paddle.Tensor:
    return paddle.to_tensor(array).astype(dtype)


@dataclass(frozen=True)
class Wanted:
    """Of what the gradient is wanted."""

    x: bool = False
    value: bool = False


GRADIENTS = {"none": Wanted(), "of x": Wanted(x=True), "of the value": Wanted(value=True), "of both": Wanted(True, True)}


def weights(rng: np.random.Generator, shape: Shape, dtype: str) -> np.ndarray:
    """Weights whose sums are exact in the type; those of more than 16 bits are positive, so that no sum is 0 by chance."""
    lowest, above = (1, 5) if dtype in ("float32", "float64") else (-1, 2)
    return np.asarray(rng.integers(lowest, above, shape), "float32")


def _index(rng: np.random.Generator, case: Case) -> tuple[Index, Any]:
    """The index for numpy, and for Paddle."""
    items = case.index.make(rng, case.shape)

    def convert(item: Any) -> Any:
        if not isinstance(item, np.ndarray):
            return item
        return paddle.to_tensor(item) if item.dtype == bool and case.positions != "list" else POSITIONS[case.positions](item)

    given = tuple(map(convert, items))
    return items, given if len(given) > 1 else given[0]


def _places(case: Case, items: Index) -> tuple[np.ndarray, np.ndarray]:
    """Of each element of the tensor, and of what the index selects, its place in the memory."""
    whole = case.layout.whole(case.shape)
    places = case.layout.view(np.arange(np.prod(whole, dtype=int)).reshape(whole))
    basic, arrays = split(items, len(case.shape))
    return places, np.asarray(np.asarray(places[basic])[arrays])


def _read(case: Case) -> Compared:
    """Read by the index on the device in use; of a floating type with the gradient of sum(result * weight)."""
    rng = case.rng()
    items, given = _index(rng, case)
    whole = drawn(rng, case.layout.whole(case.shape), case.dtype)
    _, places = _places(case, items)
    right = {"result": whole.ravel()[places]}
    with strides(case.strides):
        memory = tensor_of(whole, case.dtype)
        memory.stop_gradient = case.dtype not in FLOATS
        result = case.layout.view(memory)[given]
        found = {"result": to_numpy(result)}
        if case.dtype in FLOATS:
            weight = weights(rng, places.shape, case.dtype)
            right["gradient"] = _added(whole.shape, places, weight)
            (gradient,) = paddle.grad([result], [memory], [tensor_of(weight, case.dtype)])
            found["gradient"] = gradient.astype("float32").numpy()
    return Compared(found, right)


def _added(shape: Shape, places: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Zeros of this shape with each weight added at its place."""
    slope = np.zeros(shape, "float32")
    np.add.at(slope.reshape(-1), places.ravel(), weight.ravel())
    return slope


def _write(case: Case) -> Compared:
    """Write by the index: the tensor and the memory that it looks at, and the gradients that the case asks for."""
    rng = case.rng()
    items, given = _index(rng, case)
    whole = drawn(rng, case.layout.whole(case.shape), case.dtype)
    places, selected = _places(case, items)
    value = _value(rng, case, selected.shape)
    after = whole.copy()
    is_itself = case.value == "itself, backwards"
    after.reshape(-1)[selected] = whole.ravel()[_backwards(selected)] if is_itself else value
    right = {"tensor": after.ravel()[places]}
    is_seen = case.layout is LAYOUTS["contiguous"] or (case.strides and not case.layout.is_copy)
    if not paddle.get_device().startswith("sim"):  # where a write to a view of rows goes to a copy
        right["memory"] = after if is_seen else whole
    with strides(case.strides):
        memory = tensor_of(whole, case.dtype)
        memory.stop_gradient = not case.gradient.x
        start = memory * 1 if case.gradient.x else memory
        tensor = case.layout.view(start)
        if is_itself:
            assigned: Any = tensor[given]
            assigned = assigned[::-1] if selected.ndim else assigned
        elif isinstance(value, np.ndarray):
            assigned = tensor_of(value, _OTHER[case.dtype] if case.value == "of another type" else case.dtype)
            assigned.stop_gradient = not case.gradient.value
        else:
            assigned = value
        tensor[given] = assigned
        found = {name: to_numpy({"tensor": tensor, "memory": start}[name]) for name in right}
        wanted = {"gradient of x": memory} if case.gradient.x else {}
        if case.gradient.value:
            wanted["gradient of the value"] = assigned
        if wanted:
            weight = weights(rng, case.shape, case.dtype)
            found |= gradients_of(tensor, wanted, weight, case.dtype)
            kept = _added(whole.shape, places, weight)
            of_selected = kept.reshape(-1)[selected]
            kept.reshape(-1)[selected] = 0
            if case.gradient.x:
                right["gradient of x"] = kept
            if case.gradient.value:
                right["gradient of the value"] = _summed(of_selected, value.shape)
    return Compared(found, right)


def gradients_of(result: Any, wanted: Mapping[str, Any], weight: np.ndarray, dtype: str) -> dict[str, np.ndarray]:
    """By name the gradient of sum(result * weight) of these tensors, in float32; zeros where nothing was selected."""
    slopes = paddle.grad([result], list(wanted.values()), [tensor_of(weight, dtype)], allow_unused=True)
    return {
        name: np.zeros(source.shape, "float32") if slope is None else slope.astype("float32").numpy()
        for (name, source), slope in zip(wanted.items(), slopes, strict=True)
    }


def _backwards(places: np.ndarray) -> np.ndarray:
    return places[::-1] if places.ndim else places


def _summed(slope: np.ndarray, shape: Shape) -> np.ndarray:
    """The sums of a gradient that make it one of this shape, of which it has the last axes."""
    return np.asarray(slope.reshape(-1, *shape).sum(0) if slope.size else np.zeros(shape, slope.dtype))


_OTHER = {**dict.fromkeys(FLOATS, "int64"), "int64": "float32", "int32": "float32", "bool": "int64"}
_LARGE = {"float64": 2.0**24 + 1, "int64": 2**24 + 1, "int32": 2**24 + 1}


def _value(rng: np.random.Generator, case: Case, shape: Shape) -> Any:
    """What is assigned to a selection of this shape: a number or an array."""
    if case.value == "a large number":
        return _LARGE[case.dtype]
    if case.value == "number":
        return bool(rng.integers(0, 2)) if case.dtype == "bool" else int(rng.integers(2, 100))
    if case.value == "of another type":
        above = {"bool": 2, "bfloat16": 256}.get(case.dtype, 2048)  # all integers below are exact in the type
        return np.asarray(rng.integers(0, above, shape), _OTHER[case.dtype])
    return drawn(rng, {"0-d": (), "broadcast": shape[-1:]}.get(case.value, shape), case.dtype)


def measure(case: Case) -> Compared:
    """Read or write, whichever grid the case is of; everything that was computed is right to the bit."""
    return _write(case) if "value" in case.labels else _read(case)


def _kernels(case: Case) -> list[tuple[str, str, str]]:
    """Which kernels the case may use besides those that every device has: names, types, "gradient" for a gradient's kernel."""
    used = [("set_value", ""), *([("gather_nd", ""), ("gather", ""), ("index_put", "")] if case.index.arrays else [])]
    if "new axis" in case.labels["index"]:
        used.append(("unsqueeze", ""))
    if not case.strides:
        used.append(("strided_slice", "gradient"))
    return [(kernel, case.dtype, form) for kernel, form in used]


RUN = one_by_one(measure), add_row_of(_kernels)
"""What check.grid takes as run and add_row."""

OF_LAYOUTS: dict[str, Callable[..., bool]] = {
    "a tensor without axes has no layout": lambda shape, layout: not shape and layout is not LAYOUTS["contiguous"],
    "an empty tensor has no layout": lambda shape, layout: 0 in shape and layout is not LAYOUTS["contiguous"],
    "one axis cannot be transposed": lambda shape, layout: (
        len(shape) == 1 and layout in (LAYOUTS["transposed"], LAYOUTS["made contiguous"])
    ),
}
"""Rules that all grids with these layouts have."""

RULES: dict[str, Callable[..., bool]] = {
    **OF_LAYOUTS,
    "an index needs its axes, and an integer an element": lambda index, shape: (
        len(shape) < index.axes or (index.has_elements and 0 in shape)
    ),
    "a list without items has no type": lambda index, shape, positions: (
        positions == "list" and (0 in shape or index is INDICES["empty tensor"])
    ),
    "only a tensor or a mask has a type, and a mask is no int32": lambda index, positions: (
        positions != "int64" and (not index.arrays or (index.arrays == "mask" and positions == "int32"))
    ),
}

RULES_OF_WRITING: dict[str, Callable[..., bool]] = {
    "only floats have gradients": lambda dtype, gradient: gradient != Wanted() and dtype not in FLOATS,
    "a number and a value of an integer type have no gradient": lambda value, gradient: (
        gradient.value and value in ("number", "of another type", "a large number", "itself, backwards")
    ),
    "a large number needs its digits": lambda dtype, value: value == "a large number" and dtype not in _LARGE,
    "Paddle 3.3.1 leaves the gradient of a value unset where nothing is written": lambda shape, gradient: (
        0 in shape and gradient.value
    ),
    "what is written over a part of itself has no gradient of its own": lambda value, gradient: (
        value == "itself, backwards" and gradient != Wanted()
    ),
    "values for one place have no order": lambda index, value, gradient: (
        index.is_repeated and (value not in ("number", "0-d", "a large number") or gradient.value)
    ),
}
"""Rules for writing, besides those for reading."""

CRASHES: dict[str, Callable[..., bool]] = {
    "Paddle 3.3.1 writes by a tensor beside the memory of a view": lambda index, layout, strides: (
        bool(index.arrays) and not layout.is_contiguous and bool(strides)
    ),
    "Paddle 3.3.1 writes the gradient of a value, of all types but float32, beside its memory": lambda index, dtype, gradient: (
        bool(index.arrays) and gradient.value and dtype != "float32"
    ),
    "Paddle 3.3.1 loses a write by a tensor beside a slice without stride kernels": lambda index, strides: (
        index.is_mixed and not strides
    ),
}
"""What may end the process: index_defects shows each in a process of its own."""

CRASHES_ON_SIM: dict[str, Callable[..., bool]] = {
    "on simulated cards the gradient of a write without stride kernels crashes": lambda gradient, strides: (
        gradient != Wanted() and not strides
    ),
}


def reading(types: Sequence[str] = TYPES) -> Grid:
    """The grid of reading by index. types: those of the tensor."""
    return Grid(_axes_of(types), RULES, EMPTY, each="index")


def writing(device: str, types: Sequence[str] = TYPES) -> Grid:
    """The grid of assigning by index on this device: cpu, gpu, xpu or sim."""
    rules = {**RULES, **RULES_OF_WRITING, **CRASHES, **(CRASHES_ON_SIM if device == "sim" else {})}
    return Grid({**_axes_of(types), "value": VALUES, "gradient": GRADIENTS}, rules, EMPTY, each="index")


def _axes_of(types: Sequence[str]) -> dict[str, Any]:
    return {
        "index": INDICES,
        "dtype": types,
        "shape": SHAPES,
        "layout": LAYOUTS,
        "positions": tuple(POSITIONS),
        "strides": {"1": 1, "0": 0},
    }
