"""Small proofs of what Paddle 3.3.1 gets wrong in reading and writing by index beside foreign memory, each with its workaround.

Every proof is a function without arguments, so that it can run in a process of its own. Those of WRITE_TO_VIEWS write
into foreign memory, and those of BACKWARDS end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.index_grids import strides
from xpulab.checks.compare import first_line

ARRAY = np.arange(24, dtype="float32").reshape(4, 6)
"""The elements of the tensor in every proof."""


@dataclass(frozen=True)
class Proof:
    """One defect.

    plain: what a reader would write. workaround: the same in another way. expected: the same in numpy.
    All three are functions without arguments that return an array, or for the first two a tensor.
    flag: the value of FLAGS_use_stride_kernel with which the defect shows.
    """

    plain: Callable[[], Any]
    workaround: Callable[[], Any]
    expected: Callable[[], np.ndarray]
    flag: int = 1


def plain_forms(proofs: Mapping[str, Proof]) -> dict[str, Any]:
    """By name what Paddle gives for the plain form, as an array, or as the text of an error."""
    return {name: outcome(proof, proof.plain) for name, proof in proofs.items()}


def workarounds(proofs: Mapping[str, Proof]) -> dict[str, Any]:
    """By name what it gives for the workaround."""
    return {name: outcome(proof, proof.workaround) for name, proof in proofs.items()}


def outcome(proof: Proof, form: Callable[[], Any]) -> Any:
    """What one form of a proof gives, with the proof's flag."""
    with strides(proof.flag):
        return answer_of(lambda: np.asarray(form()))


def answer_of(call: Callable[[], Any]) -> Any:
    """What the function returns, or the kind and first line of the error that it raises."""
    try:
        return call()
    except Exception as error:
        return f"{type(error).__name__}: {first_line(error)}"


def tensor() -> paddle.Tensor:
    """A new tensor of ARRAY."""
    return paddle.to_tensor(ARRAY)


def _to(*values: Any) -> paddle.Tensor:
    return paddle.to_tensor(values)


def _assign(target: Callable[[Any], Any], index: Any, value: Any) -> Callable[[], paddle.Tensor]:
    """A function that assigns to target(tensor)[index] and returns the whole tensor; an index in a function is made late."""

    def function() -> paddle.Tensor:
        whole = tensor()
        target(whole)[index()] = value()
        return whole

    return function


def _assigned(target: Callable[[np.ndarray], np.ndarray], index: Any, value: Any) -> Callable[[], np.ndarray]:
    """The same in numpy."""

    def function() -> np.ndarray:
        whole = ARRAY.copy()
        target(whole)[index] = value
        return whole

    return function


_COLUMNS = np.array([False, True, False, True])
_VALUES = np.array([100, 200], dtype="float32")

NEW_AXIS = {
    "a new axis and a tensor": Proof(
        lambda: tensor()[None, _to(0, 0)],
        lambda: tensor()[_to(0, 0)].unsqueeze(0),
        lambda: ARRAY[None, [0, 0]],
    ),
}
"""Reading by a tensor after a new axis."""

WRITE_TO_VIEWS = {
    "columns, rows by a tensor": Proof(
        _assign(lambda x: x[:, 1:4], lambda: _to(0, 2), lambda: 5.0),
        _assign(lambda x: x, lambda: (_to(0, 2), slice(1, 4)), lambda: 5.0),
        _assigned(lambda x: x[:, 1:4], [0, 2], 5.0),
    ),
    "every second column, rows by a tensor": Proof(
        _assign(lambda x: x[:, ::2], lambda: _to(0, 2), lambda: 5.0),
        _assign(lambda x: x, lambda: (_to(0, 2), slice(None, None, 2)), lambda: 5.0),
        _assigned(lambda x: x[:, ::2], [0, 2], 5.0),
    ),
    "transposed, elements by two tensors": Proof(
        _assign(lambda x: x.t(), lambda: (_to(1, 4), _to(0, 2)), lambda: paddle.to_tensor(_VALUES)),
        _assign(lambda x: x, lambda: (_to(0, 2), _to(1, 4)), lambda: paddle.to_tensor(_VALUES)),
        _assigned(lambda x: x.T, ([1, 4], [0, 2]), _VALUES),
    ),
}
"""Writing by a tensor to a view."""

WITHOUT_STRIDES = {
    "rows by a tensor, and a slice": Proof(
        _assign(lambda x: x, lambda: (_to(0, 2), slice(1, 3)), lambda: 5.0),
        _assign(lambda x: x, lambda: _elements([0, 2], [1, 2]), lambda: 5.0),
        _assigned(lambda x: x, ([0, 2], slice(1, 3)), 5.0),
        flag=0,
    ),
    "all, and columns by a tensor": Proof(
        _assign(lambda x: x, lambda: (slice(None), _to(1, 3)), lambda: 5.0),
        _assign(lambda x: x, lambda: _elements([0, 1, 2, 3], [1, 3]), lambda: 5.0),
        _assigned(lambda x: x, (slice(None), [1, 3]), 5.0),
        flag=0,
    ),
}
"""Writing by a tensor and a slice with FLAGS_use_stride_kernel=0: the tensor stays as it was."""

BACKWARDS = {
    "read by a tensor": Proof(
        lambda: tensor()[_to(0, 2), ::-1],
        lambda: tensor()[_to(0, 2)].flip(1),
        lambda: ARRAY[[0, 2], ::-1],
    ),
    "read by a mask": Proof(
        lambda: tensor()[paddle.to_tensor(_COLUMNS), ::-1],
        lambda: tensor()[paddle.to_tensor(_COLUMNS)].flip(1),
        lambda: ARRAY[_COLUMNS, ::-1],
    ),
    "write by a tensor": Proof(
        _assign(lambda x: x, lambda: (_to(0, 2), slice(None, None, -1)), lambda: paddle.arange(6.0)),
        _assign(lambda x: x, lambda: _to(0, 2), lambda: paddle.arange(6.0).flip(0)),
        _assigned(lambda x: x, ([0, 2], slice(None, None, -1)), np.arange(6.0)),
    ),
}
"""A tensor or a mask beside a slice that goes backwards: the process ends with signal 11."""


def _elements(rows: list[int], columns: list[int]) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The positions of all elements in these rows and columns, as two tensors."""
    first, second = (paddle.to_tensor(each.ravel()) for each in np.meshgrid(rows, columns))
    return first, second
