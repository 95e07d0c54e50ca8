"""Small proofs of what Paddle 3.3.1 gets wrong in reading and writing by index, and in gradients of it, each with a workaround.

Every proof is a function without arguments, so that it can run in a process of its own: those of UNSAFE read and write beside
the memory of tensors, or end the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab.chapters.shared.operator_tester import strides
from xpulab.checks.compare import first_line

ARRAY = np.arange(24, dtype="float32").reshape(4, 6)
"""The elements of the tensor in every proof."""

WEIGHTS = np.arange(1, 25, dtype="float32").reshape(4, 6)
"""Of the elements in the sum whose gradient is taken."""


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


def outcomes(proofs: Mapping[str, Proof], form: str) -> dict[str, Any]:
    """By name what Paddle gives for this form, "plain" or "workaround", as an array or as the text of an error."""
    return {name: outcome(proof, getattr(proof, form)) for name, proof in proofs.items()}


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


def _tensor() -> paddle.Tensor:
    return paddle.to_tensor(ARRAY)


def _to(*values: Any) -> paddle.Tensor:
    return paddle.to_tensor(values)


def _assign(target: Callable[[Any], Any], index: Callable[[], Any]) -> Callable[[], paddle.Tensor]:
    """A function that assigns 5 to target(tensor)[index()] and returns the whole tensor."""

    def function() -> paddle.Tensor:
        whole = _tensor()
        target(whole)[index()] = 5.0
        return whole

    return function


def _assigned(index: Any) -> Callable[[], np.ndarray]:
    """The same in numpy, of the whole tensor."""

    def function() -> np.ndarray:
        whole = ARRAY.copy()
        whole[index] = 5.0
        return whole

    return function


def _slope(function: Callable[[Any], Any], given: Any, dtype: Any = "float32") -> Callable[[], np.ndarray]:
    """A function that returns the gradient of the weighted sum of function(given), in single precision."""

    def slope() -> np.ndarray:
        x = paddle.to_tensor(given, dtype, stop_gradient=False)
        result = function(x).astype("float32")
        weights = paddle.to_tensor(WEIGHTS.ravel()[: result.size].reshape(result.shape))
        return paddle.grad([(result * weights).sum()], [x])[0].astype("float32").numpy()

    return slope


_POSITIONS = np.array([[-1], [-2], [-1], [-6]])


def _set_rows(value: Any) -> Any:
    whole = _tensor().astype(value.dtype)
    whole[_to(0, 2)] = value
    return whole


def _written_through_a_view(x: Any) -> Any:
    copy = x * 1
    copy[:, 1:3].scale_(2.0)
    return copy


def _written_by_index(x: Any) -> Any:
    copy = x * 1
    copy[:, 1:3] = 2 * copy[:, 1:3]
    return copy


SAFE = {
    "a new axis and a tensor": Proof(
        lambda: _tensor()[None, _to(0, 0)],
        lambda: _tensor()[_to(0, 0)].unsqueeze(0),
        lambda: ARRAY[None, [0, 0]],
    ),
    "gradient, of an element that as_strided shows twice": Proof(
        _slope(lambda x: paddle.as_strided(x, [4, 6], [0, 1]), ARRAY),
        _slope(lambda x: x[:1].expand([4, 6]), ARRAY),
        lambda: np.concatenate([WEIGHTS.sum(axis=0, keepdims=True), 0 * WEIGHTS[1:]]),
    ),
    "without stride kernels, rows by a tensor, and a slice": Proof(
        _assign(lambda x: x, lambda: (_to(0, 2), slice(1, 3))),
        _assign(lambda x: x, lambda: (_to(0, 0, 2, 2), _to(1, 2, 1, 2))),
        _assigned(([0, 2], slice(1, 3))),
        flag=0,
    ),
    "gradient, written through a view": Proof(
        _slope(_written_through_a_view, ARRAY),
        _slope(_written_by_index, ARRAY),
        lambda: WEIGHTS * [1, 2, 2, 1, 1, 1],
    ),
}
"""Proofs that stay within the memory of their tensors."""


def _nll_loss(reduction: Any) -> paddle.Tensor:
    """Of so many rows that what is written beside a sum ends the process; one of them counts, with a loss of 1.5."""
    labels = np.full(2_000_000, -100)
    labels[0] = 0
    return F.nll_loss(paddle.full([len(labels), 1], -1.5), paddle.to_tensor(labels), reduction=reduction)


UNSAFE = {
    "columns, rows by a tensor": Proof(
        _assign(lambda x: x[:, 1:4], lambda: _to(0, 2)),
        _assign(lambda x: x, lambda: (_to(0, 2), slice(1, 4))),
        _assigned(([0, 2], slice(1, 4))),
    ),
    "a tensor beside a slice that goes backwards": Proof(
        lambda: _tensor()[_to(0, 2), ::-1],
        lambda: _tensor()[_to(0, 2)].flip(1),
        lambda: ARRAY[[0, 2], ::-1],
    ),
    "gradient, put_along_axis at a negative position": Proof(
        _slope(lambda v: paddle.put_along_axis(_tensor(), paddle.to_tensor(_POSITIONS), v, 1), ARRAY[:, :1]),
        _slope(lambda v: paddle.put_along_axis(_tensor(), paddle.to_tensor(_POSITIONS % 6), v, 1), ARRAY[:, :1]),
        lambda: np.take_along_axis(WEIGHTS, _POSITIONS % 6, 1),
    ),
    "gradient, index_select at a negative position": Proof(
        _slope(lambda x: paddle.index_select(x, _to(-1, -2)), ARRAY),
        _slope(lambda x: paddle.index_select(x, _to(3, 2)), ARRAY),
        lambda: np.concatenate([0 * WEIGHTS[:2], WEIGHTS[1::-1]]),
    ),
    "gradient, rows set in bfloat16": Proof(
        _slope(_set_rows, ARRAY[:2], "bfloat16"),
        _slope(lambda value: _set_rows(value.astype("float32")), ARRAY[:2], "bfloat16"),
        lambda: WEIGHTS[[0, 2]],
    ),
    "nll_loss, the sum where labels are ignored": Proof(
        lambda: _nll_loss("sum").reshape([1]),
        lambda: _nll_loss("none").sum().reshape([1]),
        lambda: np.array([1.5], "float32"),
    ),
}
"""Proofs that read or write beside that memory, or end the process."""
