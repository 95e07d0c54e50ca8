"""Cases of indexing, made from a seed: what numpy says, and what Paddle answers.

    answers = index_cases.run(seed)          # on this device, with FLAGS_use_stride_kernel 1 and 0
    index_cases.compare_reads(rows, seed, answers)

Reference implementation: numpy, applied in two steps, because Paddle applies integers and slices first and then the arrays
(numpy counts an integer beside an array as an array). Elements of a tensor differ from their neighbours, so that a result
from another place is another result. What Paddle 3.3.1 gets wrong is no part of the grid; the chapter has a small check for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.missing_kernels import lacked, undeclared
from xpulab.checks.table import Table

TYPES = ("float32", "float64", "int64", "int32", "bool", "float16", "bfloat16")
"""Types of Paddle that are tried. bfloat16 is compared as float32, which is exact for the small integers here."""

KERNELS = (("gather_nd", "gather"), ("index_put",))
"""The kernels that read, and that write, by a tensor of positions or a mask; a device may lack them for a type."""

STRIDE_FLAG = "FLAGS_use_stride_kernel"

_SHAPE = (5, 6)
_MORE_SHAPES = ((7,), (3, 4, 5), (2, 3, 4, 3))
_RANDOM_CASES = 200


Answers = dict[int, list[tuple[Any, Any]]]
"""For each value of the flag and each case what was read, and the whole tensor after the assignment."""


@dataclass(frozen=True)
class IndexCase:
    """One index.

    name: unique, as "int64, columns: x[2:4, tensor([0, 2])]".
    shape: of the tensor. dtype: one of TYPES. view: how the tensor was made, a key of VIEWS.
    index: items as numpy takes them; an array stands for a tensor. lists: give arrays to Paddle as Python lists.
    value: what is assigned, "number", "0-d", "broadcast" or "whole".
    set_view: as view, for the assignment.
    set_flags: the values of FLAGS_use_stride_kernel with which the assignment is tried; reading is tried with both.
    """

    name: str
    shape: tuple[int, ...]
    dtype: Any
    view: str
    index: tuple[Any, ...]
    lists: bool
    value: str
    set_view: str
    set_flags: tuple[int, ...]


def make(seed: int) -> list[IndexCase]:
    """All cases: each pair of items on a matrix for each type, then random ones with one, three and four axes."""
    rng = np.random.default_rng([seed, 16])
    cases: dict[str, IndexCase] = {}
    for number, (dtype, first, second) in enumerate(product(TYPES, ITEMS, ITEMS)):
        index = (ITEMS[first](rng, _SHAPE[0]), ITEMS[second](rng, _SHAPE[1]))
        _add(cases, _SHAPE, dtype, index, number, lists="list" in (first, second))
    for number in range(_RANDOM_CASES):
        shape = _MORE_SHAPES[number % len(_MORE_SHAPES)]
        _add(cases, shape, TYPES[number % len(TYPES)], _random_index(rng, shape), number, lists=False)
    return list(cases.values())


def values(case: IndexCase) -> np.ndarray:
    """The elements of the tensor before anything is assigned, of shape case.shape."""
    counted = np.arange(np.prod(case.shape)).reshape(case.shape)
    return counted % 3 == 0 if case.dtype == "bool" else counted.astype(_numpy_type(case.dtype))


def got(case: IndexCase) -> np.ndarray:
    """What reading must give."""
    return get(values(case), case.index)


def assigned(case: IndexCase) -> np.ndarray:
    """What must be assigned, a number or an array that numpy broadcasts."""
    shape = got(case).shape
    shape = {"number": (), "0-d": (), "broadcast": shape[-1:], "whole": shape}[case.value]
    if case.dtype == "bool":
        return np.arange(np.prod(shape, dtype=int)).reshape(shape) % 2 == 0
    return (100 + np.arange(np.prod(shape, dtype=int)).reshape(shape)).astype(_numpy_type(case.dtype))


def written(case: IndexCase) -> np.ndarray:
    """What the whole tensor must be after the assignment."""
    array = values(case).copy()
    put(array, case.index, assigned(case))
    return array


def neighbours(array: np.ndarray) -> np.ndarray:
    """The control: each element is that of the next place in memory."""
    return ~array if array.dtype == bool else (array.astype("float64") + 1).astype(array.dtype)


def get(array: np.ndarray, index: tuple[Any, ...]) -> np.ndarray:
    """array[index] by Paddle's rule: integers, slices and new axes first, then the arrays."""
    basic, arrays = split(index, array.ndim)
    return np.array(array[basic][arrays])


def put(array: np.ndarray, index: tuple[Any, ...], value: Any) -> None:
    """array[index] = value by the same rule."""
    basic, arrays = split(index, array.ndim)
    array[basic][arrays] = value


def split(index: tuple[Any, ...], ndim: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The index as two, to be applied one after the other: the first without arrays, the second with nothing else."""
    given = sum(_axes(item) for item in index)
    rest: list[Any] = [slice(None)] * (ndim - given)
    position = next((place for place, item in enumerate(index) if item is Ellipsis), len(index))
    full = [*index[:position], *rest, *index[position + 1 :]]
    basic: list[Any] = []
    arrays: list[Any] = []
    for item in full:
        if _is_array(item):
            basic += [slice(None)] * _axes(item)
            arrays.append(item)
        else:
            basic.append(int(item) if isinstance(item, np.ndarray) and item.dtype != bool else item)
            arrays += [] if _is_integer(item) else [slice(None)]
    return (*basic, Ellipsis), (*arrays, Ellipsis)


def run(seed: int, flags: Sequence[int] = (1, 0)) -> Answers:
    """For each flag and case what Paddle reads, and the whole tensor after the assignment, on the device in use.

    Each is an array, or a text when Paddle refuses; None for what is not tried with this flag.
    """
    cases = make(seed)
    return {flag: [_answers(case, flag) for case in cases] for flag in flags}


def compare_reads(rows: Table, seed: int, answers: Answers | str) -> None:
    """Add a row for each case: what was read, with each flag, equals what numpy says.

    answers: what run(seed) returned. Raises RuntimeError when it is a text that says how its process ended.
    """
    _compare_all(rows, seed, answers, got, 0)


def compare_writes(rows: Table, seed: int, answers: Answers | str) -> None:
    """Add a row for each case: the whole tensor after the assignment, with each flag, equals what numpy says; else as above."""
    _compare_all(rows, seed, answers, written, 1)


def _compare_all(
    rows: Table, seed: int, answers: Answers | str, expected: Callable[[IndexCase], np.ndarray], which: int
) -> None:
    if isinstance(answers, str):
        raise RuntimeError(f"the process that reads and writes all cases ended: {answers}")
    for number, case in enumerate(make(seed)):
        _compare(rows, case, expected(case), [of_flag[number][which] for of_flag in answers.values()], KERNELS[which])


def _compare(rows: Table, case: IndexCase, expected: np.ndarray, found: Sequence[Any], kernels: Sequence[str]) -> None:
    measured: list[Any]
    by_position = any(_is_array(item) for item in case.index)
    used = [*(kernels if by_position else ()), *(["unsqueeze"] if any(item is None for item in case.index) else [])]
    reason = next(filter(None, (lacked(kernel, case.dtype) for kernel in used)), "")
    tried = [each for each in found if each is not None and not (isinstance(each, str) and reason)]
    if not tried:
        rows.skip(case.name, reason)
        return
    if expected.size:
        measured, wanted, control = tried, expected, neighbours(expected)
    else:  # an empty array equals nothing, so its shape is compared
        measured = [each if isinstance(each, str) else np.array(each.shape) for each in tried]
        wanted = np.array(expected.shape)
        control = wanted + 1
    texts = [each for each in measured if isinstance(each, str)]
    if texts and used:
        texts = [undeclared(texts[0], used[0], case.dtype)]
    rows.equal(case.name, texts[0] if texts else measured, [wanted] * len(tried), control=[control] * len(tried))


def _answers(case: IndexCase, flag: int) -> tuple[Any, Any]:
    with strides(flag):
        read = answer_of(lambda: _read(case))
        after = answer_of(lambda: _write(case)) if flag in case.set_flags else None
    return read, after


def _read(case: IndexCase) -> np.ndarray:
    return to_numpy(tensor_of(case, case.view)[to_paddle(case)])


def _write(case: IndexCase) -> np.ndarray:
    tensor, value = tensor_of(case, case.set_view), assigned(case)
    tensor[to_paddle(case)] = value.item() if case.value == "number" else paddle.to_tensor(value).astype(case.dtype)
    return to_numpy(tensor)


def tensor_of(case: IndexCase, view: str) -> paddle.Tensor:
    """A tensor with values(case) as its elements, which is a view of this kind when strides are in use."""
    return VIEWS[view](values(case), case.dtype)


def to_paddle(case: IndexCase) -> tuple[Any, ...]:
    """The index as Paddle takes it: arrays as tensors, or as Python lists."""
    convert: Callable[[Any], Any] = (lambda item: item.tolist()) if case.lists else paddle.to_tensor
    return tuple(convert(item) if isinstance(item, np.ndarray) else item for item in case.index)


def to_numpy(tensor: paddle.Tensor) -> np.ndarray:
    """The elements as an array; bfloat16, which numpy lacks, as float32."""
    return tensor.astype("float32").numpy() if tensor.dtype == paddle.bfloat16 else tensor.numpy()


def answer_of(call: Callable[[], Any]) -> Any:
    """What the function returns, or the kind and last line of the error that it raises."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).strip().splitlines()[-1].strip()}"


@contextmanager
def strides(flag: int) -> Iterator[None]:
    """Inside the block FLAGS_use_stride_kernel has this value, 1 or 0; with 0 views are copies. Afterwards it is as before."""
    before = paddle.get_flags(STRIDE_FLAG)
    paddle.set_flags({STRIDE_FLAG: bool(flag)})
    try:
        yield
    finally:
        paddle.set_flags(before)


# --------------------------------------------------------------------------------------------------------- the generator


def _views() -> dict[str, Callable[[np.ndarray, Any], paddle.Tensor]]:
    def tensor(array: np.ndarray, dtype: Any) -> paddle.Tensor:
        return paddle.to_tensor(array).astype(dtype)

    def columns(array: np.ndarray, dtype: Any) -> paddle.Tensor:
        beside = np.zeros_like(array[..., :1])
        return tensor(np.concatenate([beside, array, beside], -1), dtype)[..., 1:-1]

    def steps(array: np.ndarray, dtype: Any) -> paddle.Tensor:
        return tensor(np.repeat(array, 2, 0), dtype)[::2]

    def transposed(array: np.ndarray, dtype: Any) -> paddle.Tensor:
        return tensor(np.ascontiguousarray(array.T), dtype).transpose(list(range(array.ndim))[::-1])

    return {"whole": tensor, "columns": columns, "steps": steps, "transposed": transposed}


VIEWS = _views()
"""How a tensor is made of an array and a type: as a whole, or as a view of a larger or transposed one."""


def _positions(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-size, size, shape)


def _two_true(rng: np.random.Generator, size: int) -> np.ndarray:
    mask = np.zeros(size, bool)
    mask[rng.choice(size, 2, replace=False)] = True
    return mask


ITEMS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "integer": lambda rng, size: int(rng.integers(0, size)),
    "negative integer": lambda rng, size: -int(rng.integers(1, size + 1)),
    "all": lambda rng, size: slice(None),
    "slice": lambda rng, size: slice(int(rng.integers(0, 2)), int(rng.integers(2, size + 1))),
    "step": lambda rng, size: slice(int(rng.integers(0, 2)), None, int(rng.integers(2, 4))),
    "backwards": lambda rng, size: slice(int(rng.integers(1, size)), None, -int(rng.integers(1, 3))),
    "empty slice": lambda rng, size: slice(2, 2),
    "beyond the end": lambda rng, size: slice(size - 2, size + 7),
    "0-d tensor": lambda rng, size: _positions(rng, size, ()),
    "tensor": lambda rng, size: _positions(rng, size, (2,)),
    "int32 tensor": lambda rng, size: _positions(rng, size, (2,)).astype("int32"),
    "2-d tensor": lambda rng, size: _positions(rng, size, (2, 2)),
    "list": lambda rng, size: _positions(rng, size, (2,)),
    "mask": lambda rng, size: _two_true(rng, size),
}
"""By name how an item is made for an axis of this size. Arrays have shapes that broadcast with each other."""

_BASIC = ("integer", "negative integer", "all", "slice", "step", "backwards", "empty slice", "beyond the end")
_ARRAYS = ("tensor", "2-d tensor", "mask", "0-d tensor")


def _random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """An index for a tensor of this shape, of one of four kinds: basic, with arrays, a mask of several axes, a mask of all."""
    kind = rng.integers(0, 4)
    if kind == 0:
        items = [ITEMS[name](rng, size) for name, size in zip(rng.choice(_BASIC, len(shape)), shape, strict=True)]
        items.insert(int(rng.integers(0, len(items) + 1)), None)
        return (Ellipsis, *items[-2:]) if rng.integers(0, 2) else tuple(items)
    if kind == 1:
        names = [rng.choice(_ARRAYS if rng.integers(0, 2) else _BASIC) for _ in shape]
        return tuple(ITEMS[name](rng, size) for name, size in zip(names, shape, strict=True))
    axes = len(shape) if kind == 2 else int(rng.integers(1, len(shape) + 1))
    mask = rng.random(shape[:axes]) < rng.choice([0.0, 0.3, 1.0])
    return (mask, *(ITEMS["slice"](rng, size) for size in shape[axes:]))


def _add(
    cases: dict[str, IndexCase], shape: tuple[int, ...], dtype: str, index: tuple[Any, ...], number: int, lists: bool
) -> None:
    """Add the case, unless it is one of the defects that the chapter shows apart."""
    arrays = [place for place, item in enumerate(index) if _is_array(item)]
    slices = [place for place, item in enumerate(index) if isinstance(item, slice)]
    backwards = any((index[place].step or 1) < 0 for place in slices)
    none_true = any(index[place].dtype == bool and not index[place].any() for place in arrays)
    mixed = len({_position_type(index[place]) for place in arrays}) > 1
    if mixed or (arrays and (backwards or (none_true and slices))):
        return
    view = list(VIEWS)[number % len(VIEWS)]
    value = ("number", "0-d", "broadcast", "whole")[number // len(VIEWS) % 4]
    masks = [place for place in arrays if index[place].dtype == bool]
    if value == "number" and masks and sum(place < max(masks) for place in slices) > 1:
        value = "0-d"
    text = ", ".join(_text(item, lists) for item in index)
    after_slice = bool(arrays) and min(slices, default=len(index)) < max(arrays)
    view = "whole" if after_slice else view
    cuts = bool(arrays) and any(index[place] != slice(None) for place in range(len(index)) if place not in arrays)
    case = IndexCase(
        name=f"{dtype}, {list(shape)} {view}: x[{text}]",
        shape=shape,
        dtype=dtype,
        view=view,
        index=index,
        lists=lists,
        value=value,
        set_view="whole" if arrays else view,
        set_flags=(1,) if cuts or after_slice else (1, 0),
    )
    cases.setdefault(case.name, case)


def _text(item: Any, lists: bool) -> str:
    if isinstance(item, slice):
        parts = [item.start, item.stop] + ([item.step] if item.step else [])
        return ":".join("" if part is None else str(part) for part in parts)
    if isinstance(item, np.ndarray):
        kind = "" if lists else "mask" if item.dtype == bool else "int32" if item.dtype == np.int32 else "tensor"
        return f"{kind}({item.astype(int).tolist()})" if kind else str(item.tolist())
    return {None: "None", Ellipsis: "..."}.get(item, str(item))


def _is_array(item: Any) -> bool:
    """Whether the item counts as an array; a 0-d tensor of integers counts as an integer."""
    return isinstance(item, np.ndarray) and not (item.ndim == 0 and item.dtype != bool)


def _is_integer(item: Any) -> bool:
    return isinstance(item, int) or (isinstance(item, np.ndarray) and item.ndim == 0)


def _axes(item: Any) -> int:
    """How many axes of the tensor the item stands for."""
    if item is None or item is Ellipsis:
        return 0
    return item.ndim if isinstance(item, np.ndarray) and item.dtype == bool else 1


def _position_type(item: np.ndarray) -> str:
    """The type of the positions that an array stands for; a mask becomes positions in int64."""
    return "int64" if item.dtype == bool else str(item.dtype)


def _numpy_type(dtype: str) -> str:
    return "float32" if dtype == "bfloat16" else dtype
