"""Record the operators that a step calls, forward and in Python code of backward, with shapes, types and attributes.

Paddle's Python code calls every operator as an attribute of paddle._C_ops (or paddle._legacy_C_ops), and the arithmetic of
tensors as methods that are written in C++. Inside the block these are replaced by functions that note their arguments and
then call the operator. What is called from C++ is not seen: the census of xpulab.operators.census names it.
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

from xpulab.operators import census
from xpulab.operators.calls import FLOATS, Amp, Call, CurrentPlace, NamedType, Recording, TensorSpec, Unknown

ARITHMETIC = (
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__div__", "__rdiv__", "__truediv__"),
    *("__rtruediv__", "__floordiv__", "__rfloordiv__", "__pow__", "__rpow__", "__mod__", "__rmod__", "__matmul__"),
    *("__rmatmul__", "__gt__", "__ge__", "__lt__", "__le__", "__eq__", "__ne__"),
)
METHODS = (*ARITHMETIC, "_getitem_dygraph", "_setitem_dygraph", "clone", "contiguous")
"""The methods of tensors in C++ that compute."""

OWNERS: dict[str, Any] = {"_C_ops": _C_ops, "_legacy_C_ops": _legacy_C_ops, "Tensor": paddle.Tensor}
"""By name what the operators are attributes of."""

LARGEST_KEPT = 1 << 22
"""The elements of the largest integer tensor whose values are kept; larger ones are replayed with their range."""

_FOLDERS = tuple(f"{Path(file).resolve().parent}/" for file in (__file__, str(paddle.__file__)))  # not that of paddlenlp


def record(step: Callable[[], Any]) -> Recording:
    """The operators that step() calls. It should be the second step: the first also makes the optimizer's state."""
    with recorded() as recorder:
        step()
    return recorder.recording()


@contextmanager
def recorded() -> Iterator[Recorder]:
    """Record the operators that are called inside the block; ask the recorder for them after the block."""
    recorder = Recorder()
    recorder.begin()
    try:
        yield recorder
    finally:
        recorder.end()


class Recorder:
    """Records from begin() to end(); once."""

    def __init__(self) -> None:
        self._calls: dict[tuple, Call] = {}
        self._local = threading.local()
        self._replaced: list[tuple[Any, str, Any]] = []
        self._census = census.Census()
        self._device = ""

    def begin(self) -> None:
        """Replace the operators, and start the profiler that the census is taken from."""
        self._device = str(paddle.get_device())
        for label, owner in OWNERS.items():
            for name, function in operators(label, owner):
                self._replaced.append((owner, name, function))
                setattr(owner, name, self._recording(label, name, function))
        self._census.begin()

    def end(self) -> None:
        """Put the operators back."""
        self._census.end()
        while self._replaced:
            owner, name, function = self._replaced.pop()
            setattr(owner, name, function)

    def recording(self) -> Recording:
        """What was recorded; after end()."""
        return Recording(tuple(self._calls.values()), self._census.not_recorded(), self._device)

    def _recording(self, owner: str, name: str, function: Callable) -> Callable:
        def operator(*arguments: Any, **named: Any) -> Any:
            if getattr(self._local, "inside", False):
                return function(*arguments, **named)
            self._local.inside = True
            try:
                with self._census.marked():
                    call = self._note(owner, name, arguments, named)
                    try:
                        result = function(*arguments, **named)
                    except BaseException:
                        self._forget(call)
                        raise
                    self._note_result(call, arguments, result)
            finally:
                self._local.inside = False
            return result

        operator.__name__ = name
        operator.__doc__ = function.__doc__
        return operator

    def _note(self, owner: str, name: str, arguments: tuple, named: dict[str, Any]) -> tuple:
        """Count the call; returns its key."""
        is_learning = paddle.is_grad_enabled()
        given = _described(arguments, is_learning)
        options = tuple((key, _described(value, is_learning)) for key, value in named.items())
        amp = _amp()
        key = (owner, name, repr(given), repr(options), amp)
        known = self._calls.get(key)
        if known:
            self._calls[key] = replace(known, count=known.count + 1)
            return key
        call = Call(owner, name, given, options, amp=amp, caller=caller())
        tensors = list(_tensors((arguments, tuple(named.values()))))
        ranges = iter([_with_range(spec, tensor) for spec, tensor in zip(call.tensors(), tensors, strict=True)])
        self._calls[key] = call.with_tensors(lambda _: next(ranges))
        return key

    def _forget(self, key: tuple) -> None:
        """A call that raises is not part of the step: `for row in tensor` ends with one."""
        call = self._calls.pop(key)
        if call.count > 1:
            self._calls[key] = replace(call, count=call.count - 1)

    def _note_result(self, key: tuple, arguments: tuple, result: Any) -> None:
        call = self._calls[key]
        if call.count == 1:
            found = _described(tuple(results_of(call.is_in_place, arguments, result)), True)
            specs = tuple(each if isinstance(each, TensorSpec) else None for each in found)
            self._calls[key] = replace(call, results=specs)


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


def operators(label: str, owner: Any) -> Iterator[tuple[str, Callable]]:
    """The operators among the attributes of a module, or the methods of tensors."""
    if label == "Tensor":
        yield from ((name, getattr(owner, name)) for name in METHODS if hasattr(owner, name))
        return
    for name, value in list(vars(owner).items()):
        if not name.startswith("_") and callable(value) and not isinstance(value, type):
            yield name, value


def _described(value: Any, is_learning: bool) -> Any:
    """The argument with a TensorSpec for each tensor in it."""
    if isinstance(value, paddle.Tensor):
        return _specification(value, is_learning)
    if isinstance(value, tuple | list):  # also paddle.Size
        return (tuple if isinstance(value, tuple) else list)(_described(each, is_learning) for each in value)
    if isinstance(value, slice):
        return slice(
            *(int(part) if isinstance(part, paddle.Tensor) else part for part in (value.start, value.stop, value.step))
        )
    if value is None or isinstance(value, bool | int | float | complex | str | type(Ellipsis) | np.generic):
        return value
    if isinstance(value, paddle.dtype | paddle.base.core.VarDesc.VarType):
        return NamedType(_name_of_type(value))
    return CurrentPlace() if "Place" in type(value).__name__ else Unknown(type(value).__name__)


def _specification(tensor: paddle.Tensor, is_learning: bool) -> Any:
    if not has_elements_or_is_empty(tensor) or tensor.is_dist():
        return Unknown("distributed tensor" if tensor.is_dist() else "tensor that is not dense")
    return TensorSpec(tuple(tensor.shape), _name_of_type(tensor.dtype), is_learning and not tensor.stop_gradient)


def _tensors(value: Any) -> Iterator[paddle.Tensor]:
    """The tensors of an argument that have a TensorSpec, in the order of Call.tensors()."""
    if isinstance(value, paddle.Tensor):
        if isinstance(_specification(value, False), TensorSpec):
            yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors(each)


def _with_range(spec: TensorSpec, tensor: paddle.Tensor) -> TensorSpec:
    """The specification with the range of the elements of this tensor, or the elements themselves if they are integers."""
    if not tensor.size:
        return spec
    with paddle.no_grad(), paddle.amp.auto_cast(enable=False):
        plain = tensor.detach()
        if spec.dtype in FLOATS:
            plain = plain.astype("float32")
            return replace(spec, low=float(plain.min()), high=float(plain.max()))
        if spec.dtype.startswith(("int", "uint", "bool")) and tensor.size <= LARGEST_KEPT:
            return replace(spec, values=plain.numpy().copy())
        if spec.dtype.startswith(("int", "uint")):
            return replace(spec, low=float(plain.min()), high=float(plain.max()))
    return spec


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
