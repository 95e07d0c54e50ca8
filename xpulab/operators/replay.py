"""Call a recorded operator again on random numbers, and compare value and gradient with the reference.

    result = replay(call, seed=0, device="cpu")

A value may differ by rounding: by element, error / tolerance is at most 1. A gradient is compared along directions, with
central differences of the reference in double precision, so that no formula for it is needed: for a random weighted sum of the
results, the gradient times a direction is the slope of the reference along it. The elements of each input are divided into
blocks with a direction each, so that a wrong gradient of a few rows is not lost among the others.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import paddle

from xpulab.chapters.shared.device import no_fallback, places
from xpulab.chapters.shared.kept_bits import bits_of_products
from xpulab.checks.compare import first_line, format_error
from xpulab.messages import N_
from xpulab.operators import differences, tolerances
from xpulab.operators.calls import FLOATS, Call
from xpulab.operators.inputs import ORDERED, NotReplayable, arrays_of, dense, invoked, numbers_of, rounded, tensor_of
from xpulab.operators.recorder import has_elements_or_is_empty
from xpulab.operators.reference import CPU, reference_for
from xpulab.reference.bounds import BITS, long_sum

LARGEST = 1 << 28
"""The elements of all tensors of an operator that is compared; larger ones are listed, and not compared."""

LARGEST_ORDERED = 1 << 13
"""The elements up to which an operator that orders them has a gradient to be compared."""

PRODUCTS = ("matmul", "linear", "bmm")
RANDOM = (
    *("uniform", "gaussian", "randint", "randperm", "bernoulli", "multinomial", "exponential", "poisson", "normal"),
    *("truncated_gaussian_random", "uniform_inplace", "gaussian_inplace", "dropout", "fused_dropout_add"),
    *("empty", "empty_like"),
)
"""Operators whose results are not determined by their arguments."""


class BackwardFailed(RuntimeError):
    """Paddle's gradient of an operator raised this."""


@dataclass(frozen=True)
class Result:
    """What came of one operator.

    call: the operator. reference: NUMPY, CPU, or "" when nothing was compared.
    value, gradient: the largest error / tolerance, at most 1 when it is right; None when it was not compared.
    value_control, gradient_control: the same for results that are wrong on purpose, above 1.
    falls_back: whether the device has no kernel, so that the CPU computes it. error: what the operator raised.
    reason: why value or gradient was not compared.
    """

    call: Call
    reference: str = ""
    value: float | None = None
    value_control: float | None = None
    gradient: float | None = None
    gradient_control: float | None = None
    falls_back: bool = False
    error: str = ""
    reason: str = ""

    @property
    def outcome(self) -> str:
        """ "right", "wrong" or "not compared"."""
        if self.error or any(each is not None and not each <= 1 for each in (self.value, self.gradient)):
            return "wrong"
        return "not compared" if self.value is None and self.gradient is None else "right"


def replay(call: Call, seed: int = 0, device: str = "cpu") -> Result:
    """Call the operator on the device in use, and compare. device: its name, "cpu", "gpu", "xpu" or "sim"."""
    result = Result(call)
    if sum(int(np.prod(spec.shape)) for spec in (*call.tensors(), *filter(None, call.results))) > LARGEST:
        return replace(result, reason=N_("too large to be compared"))
    try:
        arrays = arrays_of(call, seed)
        attempt = called(call, arrays)
        found = [numbers_of(each) for each in attempt.results]
    except NotReplayable as problem:
        return replace(result, reason=str(problem))
    except Exception as error:
        return replace(result, error=format_error(error))
    kind = paddle.get_device().split(":")[0]
    elsewhere = [each for each in places(each for each in attempt.results if each._is_initialized()) if each != kind]
    if elsewhere and call.operator not in ("shape", "shape64"):  # shapes are always on the CPU
        return replace(result, error=f"its result is on {elsewhere[0]}")
    if device != "cpu":
        result = replace(result, falls_back=_falls_back(call, arrays))
    if call.operator in RANDOM:
        return replace(result, reason=N_("its results are random or undefined"))
    if call.operator in ORDERED and arrays[0].size > 2 ** BITS.get(call.tensors()[0].dtype, BITS["float64"]):
        return replace(result, reason=N_("equal elements may be in any order"))
    if any(np.iscomplexobj(each) for each in found):
        return replace(result, reason=N_("its results are complex numbers"))
    return _compared(result, attempt, arrays, found, seed, device)


@dataclass(frozen=True)
class Attempt:
    """An operator that was called: its tensor arguments, and those results that are tensors, in order."""

    arguments: list[Any]
    results: list[Any]


def called(call: Call, arrays: list[np.ndarray]) -> Attempt:
    """Call the operator with these arrays. Gradients can be computed unless it works in place."""
    tensors = [tensor_of(array, spec.dtype) for array, spec in zip(arrays, call.tensors(), strict=True)]
    for tensor, spec in zip(tensors, call.tensors(), strict=True):
        tensor.stop_gradient = call.is_in_place or not spec.wants_gradient
    amp: Any = {"level": call.amp.level, "dtype": call.amp.dtype}  # with Paddle's own lists of operators
    with nullcontext() if call.amp.level == "O0" else paddle.amp.auto_cast(**amp):
        found = invoked(call, tensors, paddle.base.framework._current_expected_place())
    return Attempt(tensors, [each for each in found if has_elements_or_is_empty(each)])


def _compared(result: Result, attempt: Attempt, arrays: list, found: list, seed: int, device: str) -> Result:
    call, began = result.call, time.perf_counter()
    try:
        reference, results = reference_for(call, arrays)
    except Exception as error:
        return replace(result, reason=N_("no reference: {name}: {error}", name=type(error).__name__, error=first_line(error)))
    seconds = time.perf_counter() - began
    expected = [each for each in results if each is not None]
    wanted = results if len(results) == len(found) else expected  # it did not return those that are None
    kept = [tensor for tensor, want in zip(attempt.results, wanted, strict=False) if want is not None]
    values = [numbers_of(tensor) for tensor in kept]
    types = [str(tensor.dtype).rsplit(".", maxsplit=1)[-1] for tensor in kept]
    bits = _bits(call, types, device)
    source_bits = max([BITS[spec.dtype] for spec in call.tensors() if spec.dtype in BITS], default=BITS["float64"])
    result = replace(result, reference=reference.name)
    if reference.name == CPU and device == "cpu" and set(types) & set(FLOATS) == {"float64"}:
        result = replace(result, reason=N_("the reference is the same kernel"))
    elif len(values) != len(expected) or any(a.shape != np.shape(b) for a, b in zip(values, expected, strict=False)):
        shapes = [list(each.shape) for each in values], [list(np.shape(each)) for each in expected]
        return replace(result, error=f"results of shapes {shapes[0]}, expected {shapes[1]}")
    else:
        bounds = tolerances.bounds(reference, arrays, results, types, bits, source_bits, seed)
        largest, control = tolerances.judge(values, expected, bounds, types)
        if largest <= 1 >= control and any(each.size for each in values):
            result = replace(result, reason=N_("rounding may be as large as its results"))
        else:
            result = replace(result, value=largest, value_control=control)
        if any((np.isinf(value) & np.isfinite(want)).any() for value, want in zip(values, expected, strict=True)):
            return replace(result, reason=N_("no gradient of what leaves its type"))
    added = tolerances.rounded_sums(reference, arrays, [np.asarray(each) for each in expected], bits)
    return _with_gradient(result, attempt, arrays, reference, bits, added, seed, seconds)


def _with_gradient(
    result: Result, attempt: Attempt, arrays: list, reference: Any, bits: int, added: float, seed: int, seconds: float
) -> Result:
    inputs = [
        place
        for place, spec in enumerate(result.call.tensors())
        if spec.wants_gradient and spec.dtype in FLOATS and not result.call.is_in_place
    ]
    outputs = differences.differentiable(result.call, attempt.results)
    if not inputs or not outputs:
        return result
    if result.call.operator in ORDERED and arrays[0].size > LARGEST_ORDERED:
        return replace(result, reason=N_("its elements are closer to each other than the step of a difference"))
    generator = np.random.default_rng([seed, 1])
    results = [attempt.results[place] for place in outputs]
    types = [str(each.dtype).rsplit(".", maxsplit=1)[-1] for each in results]
    upstream = [rounded(generator.standard_normal(each.shape), dtype) for each, dtype in zip(results, types, strict=True)]

    def gradients_for(weights: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        given = [tensor_of(weights[place], dtype) for place, dtype in zip(outputs, types, strict=True)]
        wanted = [attempt.arguments[place] for place in inputs]
        try:
            slopes: list[Any] = paddle.grad(results, wanted, given, retain_graph=True, allow_unused=True)
        except Exception as error:
            raise BackwardFailed(format_error(error)) from error
        return {
            place: np.zeros(arrays[place].shape) if slope is None else dense(slope, arrays[place].shape)
            for place, slope in zip(inputs, slopes, strict=True)
            if slope is not None or reference.name != CPU  # Paddle has none for targets of some losses
        }

    point = differences.Slopes(reference, arrays, dict(zip(outputs, upstream, strict=True)))
    largest = max(each.size for each in (*upstream, *arrays))
    lengths = {place: largest / max(1, arrays[place].size) if bits >= BITS["float32"] else 1.0 for place in inputs}
    kept = {place: bits - math.log2(max(added, long_sum(length))) for place, length in lengths.items()}
    try:
        ratio, control = differences.judge(point, gradients_for, kept, generator, seconds)
    except BackwardFailed as problem:
        return replace(result, error=f"backward: {problem}")
    except Exception as error:
        return replace(result, reason=N_("no slope of the reference: {error}", error=first_line(error)))
    if ratio is None:
        result = replace(
            result, reason=N_("its gradient has no slope to be compared with: its results are at a kink, or rounded to it")
        )
    return replace(result, gradient=ratio, gradient_control=control)


def _falls_back(call: Call, arrays: list[np.ndarray]) -> bool:
    """Whether the operator, or its gradient, raises when the CPU may not compute it."""
    with no_fallback():
        try:
            attempt = called(call, arrays)
            outputs = differences.differentiable(call, attempt.results)
            inputs = [place for place, tensor in enumerate(attempt.arguments) if not tensor.stop_gradient]
            if inputs and outputs:
                results = [attempt.results[place] for place in outputs]
                paddle.grad(results, [attempt.arguments[place] for place in inputs], allow_unused=True)
        except RuntimeError:
            return True
    return False


def _bits(call: Call, types: list[str], device: str) -> int:
    """The bits with which the operator may compute: of its narrowest type, and for products of what the device keeps."""
    used = {spec.dtype for spec in call.tensors()} | set(types) | ({call.amp.dtype} if call.amp.level != "O0" else set())
    bits = min([BITS[dtype] for dtype in used if dtype in BITS], default=BITS["float64"])
    if call.operator in PRODUCTS:
        return min([bits, *(kept for dtype, kept in bits_of_products(device).items() if dtype in used)])
    return bits
