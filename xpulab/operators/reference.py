"""What a recorded operator should compute: its formula in numpy, or the same operator in float64 on the CPU.

The second is weaker, because Paddle is compared with itself: a mistake that both have is not seen. Results say which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from xpulab.operators import movements  # noqa: F401 - registers its formulas
from xpulab.operators.calls import Call, NamedType, TensorSpec, mapped
from xpulab.operators.dropped import with_these_dropped
from xpulab.operators.formulas import FORMULAS, Kind
from xpulab.operators.inputs import attribute, numbers_of
from xpulab.operators.recorder import OWNERS, results_of

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


def reference_for(call: Call, arrays: Arrays, found: Arrays) -> tuple[Reference, tuple[Any, ...]]:
    """The best reference that computes something for these arrays, and its results. Raises what the last one raised.

    found: the results that the operator gave, for what is random in them.
    """
    if call.operator == "dropout":
        reference = Reference(with_these_dropped(call, found[0]), "smooth", NUMPY)
        return reference, reference.function(arrays)
    formula = FORMULAS.get(call.operator)
    if formula:
        reference = Reference(lambda given: _by_formula(call, given), formula.kind, NUMPY)
        try:
            return reference, reference.function(arrays)
        except (NotImplementedError, TypeError, ValueError, IndexError):
            pass  # arguments that the formula does not know; Paddle's own kernel does
    reference = Reference(lambda given: _on_cpu(call, given), "rows", CPU)
    return reference, reference.function(arrays)


def _by_formula(call: Call, arrays: Arrays) -> tuple[Any, ...]:
    given = iter(arrays)
    in_single = all(spec.dtype != "float64" for spec in call.tensors())
    filled = (_in_single(call) if in_single else call).with_tensors(lambda _: next(given))
    named = {key: value for key, value in filled.named if key not in _OF_THE_CALLER or value is not None}
    with np.errstate(all="ignore"):
        return FORMULAS[call.operator].results(*filled.arguments, **named)


_OF_THE_CALLER = ("out", "name")
"""Arguments that say where a result goes, and how it is called."""


def _in_single(call: Call) -> Call:
    """The call with its numbers rounded to float32: kernels for float32, and for types of 16 bits, hold attributes so."""

    def change(value: Any) -> Any:
        if isinstance(value, float):
            return float(np.float32(value))
        return type(value)(change(each) for each in value) if isinstance(value, tuple | list) else value

    return replace(call, arguments=change(call.arguments), named=tuple((key, change(value)) for key, value in call.named))


def _on_cpu(call: Call, arrays: Arrays) -> tuple[Any, ...]:
    """The operator's results in float64, computed by Paddle on the CPU."""
    place, before = paddle.CPUPlace(), paddle.get_device()
    given = iter(paddle.to_tensor(array, place=place) for array in arrays)
    filled = call.with_tensors(lambda _: next(given))
    paddle.set_device("cpu")
    try:
        with paddle.no_grad(), paddle.amp.auto_cast(enable=False):
            arguments = attribute(filled.arguments, place, _as_double)
            named = {key: attribute(value, place, _as_double) for key, value in filled.named}
            found = getattr(OWNERS[call.owner], call.name)(*arguments, **named)
            flat = results_of(call.is_in_place, arguments, found)
            return tuple(
                numbers_of(each) if isinstance(each, paddle.Tensor) and each._is_initialized() else None for each in flat
            )
    finally:
        paddle.set_device(before)


def _as_double(name: str) -> str:
    return "float64" if name in ("float32", "float16", "bfloat16") else name


def of_type(call: Call, dtype: str) -> Call:
    """The call with its tensors and types of float32 in another type.

    AdamW in a type of 16 bits has weight and gradient in it, and moments and a master weight in float32, as in training.
    """
    if call.operator == "adamw" and dtype in ("float16", "bfloat16"):
        return _mixed_adamw(call, dtype)

    def change(value: Any) -> Any:
        if isinstance(value, NamedType):
            return NamedType(dtype) if value.name == "float32" else value
        if isinstance(value, tuple | list):
            return type(value)(change(each) for each in value)
        return value

    arguments = change(mapped(call.arguments, lambda spec: _spec_of_type(spec, dtype)))
    named = tuple((key, change(mapped(value, lambda spec: _spec_of_type(spec, dtype)))) for key, value in call.named)
    results = tuple(spec and _spec_of_type(spec, dtype) for spec in call.results)
    return Call(call.owner, call.name, arguments, named, results, call.amp, call.count, call.caller)


def _spec_of_type(spec: TensorSpec, dtype: str) -> TensorSpec:
    if spec.dtype != "float32":
        return spec
    return TensorSpec(spec.shape, dtype, spec.wants_gradient, spec.low, spec.high, spec.values)


_MASTER, _MULTI_PRECISION = 8, 18
"""Where _C_ops.adamw_ has the master weight, and whether there is one."""


def _mixed_adamw(call: Call, dtype: str) -> Call:
    arguments = list(call.arguments)
    arguments[_MASTER] = arguments[0]
    arguments[_MULTI_PRECISION] = True
    arguments[:2] = [_spec_of_type(spec, dtype) for spec in arguments[:2]]
    return Call(call.owner, call.name, tuple(arguments), call.named, (), call.amp, call.count, call.caller)
