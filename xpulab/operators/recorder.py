"""Record the operators that a step calls, forward and in Python code of backward, with shapes, types and attributes.

Paddle's Python code calls every operator as an attribute of paddle._C_ops (or paddle._legacy_C_ops), and the arithmetic of
tensors as methods that are written in C++. Inside the block these are replaced by functions that note their arguments and
then call the operator. What C++ code calls without Python is not seen.
Measured on Paddle 3.3.1, on the CPU. Not run on a GPU or XPU.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import _C_ops, _legacy_C_ops

from xpulab.operators.calls import FLOATS, SHARES, SORTED, Amp, Call, CurrentPlace, NamedType, Recording, TensorSpec, Unknown
from xpulab.operators.work import Program, running_program

METHODS = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__rdiv__", "__truediv__"),
    *("__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__rpow__", "__mod__", "__rmod__", "__matmul__"),
    *("__rmatmul__", "__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__"),
    *("_getitem_dygraph", "_setitem_dygraph", "clone", "contiguous"),
)
"""The methods of tensors in C++ that compute."""

OWNERS: dict[str, Any] = {"_C_ops": _C_ops, "_legacy_C_ops": _legacy_C_ops, "Tensor": paddle.Tensor}
"""By name what the operators are attributes of."""

PROGRAMS = ("run_program", "pir_run_program")
"""Operators that run a program of paddle.jit.to_static."""

LARGEST_KEPT = 1 << 22
"""The elements of the largest integer tensor whose values are kept; of larger ones a sample."""

BUDGET = 2 << 30
"""Bytes of real numbers that `xpulab shapes` keeps of a step; what comes later is drawn anew."""

_OF_ONE = 1e-2
"""How far a sum of shares may be from 1: they have 16 bits in some steps."""

_FOLDERS = tuple(f"{Path(file).resolve().parent}/" for file in (__file__, str(paddle.__file__)))  # not that of paddlenlp


def record(step: Callable[[], Any]) -> Recording:
    """The operators that step() calls. It should be the second step: the first also makes the optimizer's state."""
    with recording() as found:
        step()
    return tuple(found)


@contextmanager
def recording(budget: int = 0) -> Iterator[list[Call]]:
    """Record the operators that are called inside the block; at its end they are in the list.

    budget: bytes of real numbers that are kept, each call's when it is called first.
    """
    calls, found = dict[tuple, Call](), list[Call]()
    left = budget

    def measured(spec: Any, tensor: Any) -> Any:
        nonlocal left
        kept = _measured(spec, tensor, left)
        if isinstance(kept, TensorSpec) and kept.dtype in FLOATS and kept.values is not None:
            left -= kept.values.nbytes
        return kept

    def noted(owner: str, name: str, function: Callable, arguments: tuple, named: dict[str, Any]) -> Any:
        if not paddle.in_dynamic_mode():  # to_static compiles
            return function(*arguments, **named)
        bare = _call(owner, name, arguments, named, lambda spec, _: spec)
        key = (owner, name, repr(bare.arguments), repr(bare.named), bare.amp)
        call = calls.get(key) or replace(_call(owner, name, arguments, named, measured), caller=caller())
        if name in PROGRAMS and not call.count:
            call = replace(call, program=running_program() or Program(1, 0.0))
        result = function(*arguments, **named)  # one that raises is not counted: `for row in tensor` ends so
        if not call.count:
            described = [_described(each, True) for each in results_of(call.is_in_place, arguments, result)]
            call = replace(call, results=tuple(each if isinstance(each, TensorSpec) else None for each in described))
        calls[key] = replace(call, count=call.count + 1)
        return result

    with replaced_operators(noted):
        yield found
    found.extend(calls.values())


def _call(owner: str, name: str, arguments: tuple, named: dict[str, Any], extend: Callable[[Any, Any], Any]) -> Call:
    """The call, not counted, with what extend(specification, argument) makes of each specification of a tensor."""
    is_learning = paddle.is_grad_enabled()
    call = Call(owner, name, arguments, tuple(named.items()), amp=_amp(), count=0)
    return call.changed(lambda value: extend(_described(value, is_learning), value))


def results_of(is_in_place: bool, arguments: tuple, result: Any) -> list[Any]:
    """The results of an operator as a flat list; of one that returns nothing, its first argument."""
    if result is None and is_in_place:
        return [arguments[0]]
    if isinstance(result, tuple | list):
        return [each for part in result for each in (part if isinstance(part, tuple | list) else [part])]
    return [result]


def has_elements_or_is_empty(value: Any) -> bool:
    """Whether this is a tensor with memory, or one that needs none; an operator may return others for results it left out."""
    return isinstance(value, paddle.Tensor) and value.is_dense() and (value._is_initialized() or 0 in value.shape)


@contextmanager
def replaced_operators(call: Callable[[str, str, Callable, tuple, dict[str, Any]], Any]) -> Iterator[None]:
    """Inside the block an operator is call(owner, name, operator, arguments, named arguments), unless another one calls it."""
    local = threading.local()

    def replacement(owner: str, name: str, function: Callable) -> Callable:
        def operator(*arguments: Any, **named: Any) -> Any:
            if getattr(local, "inside", False):
                return function(*arguments, **named)
            local.inside = True
            try:
                return call(owner, name, function, arguments, named)
            finally:
                local.inside = False

        return operator

    before = [(label, name, function) for label, owner in OWNERS.items() for name, function in _operators(label, owner)]
    try:
        for label, name, function in before:
            operator = replacement(label, name, function)
            operator.__name__, operator.__doc__ = name, function.__doc__
            setattr(OWNERS[label], name, operator)
        yield
    finally:
        for label, name, function in before:
            setattr(OWNERS[label], name, function)


def _operators(label: str, owner: Any) -> list[tuple[str, Callable]]:
    """The operators among the attributes of a module, or the methods of tensors."""
    if label == "Tensor":
        return [(name, getattr(owner, name)) for name in METHODS if hasattr(owner, name)]
    public = [(name, value) for name, value in vars(owner).items() if not name.startswith("_")]
    return [(name, value) for name, value in public if callable(value) and not isinstance(value, type)]


def _described(value: Any, is_learning: bool) -> Any:
    """The argument, with a TensorSpec in place of a tensor."""
    if isinstance(value, paddle.Tensor):
        if not value.is_dense():
            return Unknown("distributed tensor" if value.is_dist() else "tensor that is not dense")
        return TensorSpec(tuple(value.shape), _name_of_type(value.dtype), is_learning and not value.stop_gradient)
    if isinstance(value, slice):
        return slice(
            *(int(part) if isinstance(part, paddle.Tensor) else part for part in (value.start, value.stop, value.step))
        )
    if value is None or isinstance(value, bool | int | float | complex | str | type(Ellipsis) | np.generic):
        return value
    if isinstance(value, paddle.dtype | paddle.base.core.VarDesc.VarType):
        return NamedType(_name_of_type(value))
    return CurrentPlace() if "Place" in type(value).__name__ else Unknown(type(value).__name__)


def _measured(spec: Any, tensor: Any, budget: int) -> Any:
    """The specification with the elements of this tensor, where they are few or within the budget, else with what they obey."""
    if not isinstance(spec, TensorSpec) or not tensor.size:
        return spec
    if not tensor._is_initialized():  # for the result
        return replace(spec, values=np.zeros(spec.shape, "float32" if spec.dtype in FLOATS else spec.dtype))
    with paddle.no_grad(), paddle.amp.auto_cast(enable=False):
        plain = tensor.detach()
        if spec.dtype in FLOATS:
            plain = plain if spec.dtype == "float64" else plain.astype("float32")
            if tensor.size * (8 if spec.dtype == "float64" else 4) <= budget:
                return replace(spec, values=plain.numpy().copy())
            return replace(spec, low=float(plain.min()), high=float(plain.max()), obeys=_obeyed(plain))
        if not spec.dtype.startswith(("int", "uint", "bool")):
            return spec
        if tensor.size <= LARGEST_KEPT:
            return replace(spec, values=plain.numpy().copy())
        sample = plain.flatten()[:: -(-tensor.size // LARGEST_KEPT)]
        return replace(spec, values=sample.numpy().copy(), obeys="" if spec.dtype == "bool" else _obeyed(plain))


def _obeyed(plain: Any) -> str:
    """What all rows of a tensor have in common, besides their range."""
    if not plain.ndim or plain.shape[-1] < 2:
        return ""
    if bool((plain[..., 1:] >= plain[..., :-1]).all()):
        return SORTED
    is_share = str(plain.dtype).startswith("paddle.float") and bool((plain >= 0).all())
    return SHARES if is_share and bool(((plain.sum(axis=-1) - 1).abs() < _OF_ONE).all()) else ""


def _amp() -> Amp:
    tracer = paddle.base.framework._dygraph_tracer()
    level = str(tracer._amp_level).rsplit(".", maxsplit=1)[-1] if tracer else "O0"
    return Amp() if level == "O0" else Amp(level, str(tracer._amp_dtype))


def _name_of_type(dtype: Any) -> str:
    return str(dtype).rsplit(".", maxsplit=1)[-1].lower()


def caller() -> str:
    """File and line of the nearest frame that is neither Paddle's nor of this package."""
    frame: Any = sys._getframe(1)
    while frame and (frame.f_code.co_filename.startswith((*_FOLDERS, "<")) or "/contextlib.py" in frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""


ORIGINAL = {(label, name): function for label, owner in OWNERS.items() for name, function in _operators(label, owner)}
"""By owner and name the operators as they were when this module was imported: what a script replaces is no reference."""
