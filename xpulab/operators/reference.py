"""What a recorded operator should compute: its formula in numpy, or the same operator in float64 on the CPU.

The second is weaker, because Paddle is compared with itself: a mistake that both have is not seen. Results say which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from xpulab.operators.calls import FLOATS, Call, NamedType, TensorSpec, mapped
from xpulab.operators.formulas import FORMULAS, Kind
from xpulab.operators.inputs import invoked, numbers_of
from xpulab.reference.bounds import HALVES

NUMPY, CPU = "numpy", "Paddle's CPU kernel in float64"

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Reference:
    """What an operator should compute.

    function: takes an array for each tensor argument, real numbers in double precision; returns the results, None where one is
    not compared. kind: how errors are bounded, as for Formula. name: NUMPY or CPU.
    """

    function: Callable[[Arrays], tuple[Any, ...]]
    kind: Kind
    name: str

    def near(self, changed: Arrays, point: Arrays) -> tuple[Any, ...]:
        """The results of changed arrays; where the operator refuses these, of those within the range of the point's."""
        try:
            return self.function(changed)
        except Exception:
            return self.function(
                [np.clip(new, old.min(), old.max()) if old.size else new for new, old in zip(changed, point, strict=True)]
            )


def reference_for(call: Call, arrays: Arrays) -> tuple[Reference, tuple[Any, ...]]:
    """The best reference that computes something for these arrays, and its results. Raises what the last one raised."""
    formula = FORMULAS.get(call.operator)
    if formula:
        reference = Reference(lambda given: _by_formula(call, given), formula.kind, NUMPY)
        try:
            return reference, reference.function(arrays)
        except (NotImplementedError, TypeError, ValueError, IndexError):
            pass  # arguments that the formula does not know; Paddle's own kernel does
    reference = Reference(lambda given: _on_cpu(call, given), "smooth" if call.is_in_place else "rows", CPU)
    return reference, reference.function(arrays)


def _by_formula(call: Call, arrays: Arrays) -> tuple[Any, ...]:
    """What the formula gives. Kernels for float32, and for types of 16 bits, hold attributes in float32."""
    given, in_single = iter(arrays), all(spec.dtype != "float64" for spec in call.tensors())

    def argument(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            return next(given)
        return float(np.float32(value)) if in_single and isinstance(value, float) else value

    filled = call.changed(argument)
    named = {key: value for key, value in filled.named if key not in _OF_THE_CALLER or value is not None}
    with np.errstate(all="ignore"):
        return FORMULAS[call.operator].results(*filled.arguments, **named)


_OF_THE_CALLER = ("out", "name")
"""Arguments that say where a result goes, and how it is called."""


def _on_cpu(call: Call, arrays: Arrays) -> tuple[Any, ...]:
    """The operator's results in float64, computed by Paddle on the CPU."""
    place, before = paddle.CPUPlace(), paddle.get_device()
    tensors = [paddle.to_tensor(array, place=place) for array in arrays]
    paddle.set_device("cpu")
    try:
        with paddle.no_grad(), paddle.amp.auto_cast(enable=False):
            found = invoked(call, tensors, place, lambda name: "float64" if name in FLOATS else name, original=True)
            return tuple(
                numbers_of(each) if isinstance(each, paddle.Tensor) and each._is_initialized() else None for each in found
            )
    finally:
        paddle.set_device(before)


def of_type(call: Call, dtype: str) -> Call:
    """The call with its tensors and types of float32 in another type.

    AdamW in a type of 16 bits has weight and gradient in it, and moments and a master weight in float32, as in training.
    """

    def change(value: Any) -> Any:
        if isinstance(value, TensorSpec):
            return replace(value, dtype=dtype) if value.dtype == "float32" else value
        return NamedType(dtype) if value == NamedType("float32") else value

    if call.operator == "adamw" and dtype in HALVES:
        weight, gradient, *others = call.arguments
        others[_MASTER - 2], others[_MULTI_PRECISION - 2] = weight, True
        return replace(call, arguments=(change(weight), change(gradient), *others), results=())
    return replace(call.changed(change), results=mapped(call.results, change))


_MASTER, _MULTI_PRECISION = 8, 18
"""Where _C_ops.adamw_ has the master weight, and whether there is one."""
