"""What is recorded of the operators of a step: names, shapes, types, attributes, and how often each was called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from xpulab.operators.work import BACKWARD, Program, work_of

FLOATS = ("float32", "float64", "float16", "bfloat16")
"""The types of real numbers that are replayed."""


SORTED, SHARES = "sorted", "shares"
"""What the rows of a tensor obey, so that others can be drawn that its operator takes."""


@dataclass(frozen=True)
class TensorSpec:
    """A tensor argument, or a result.

    shape: its dimensions. dtype: its type by name. low, high: the range of a float tensor; None when it was not measured.
    wants_gradient: whether backward computes a gradient for it.
    values: the elements when the operator was called first, or a sample of them; None where they were not kept.
    obeys: SORTED when each row is sorted, SHARES when it sums to 1, else "".
    """

    shape: tuple[int, ...]
    dtype: str
    wants_gradient: bool = False
    low: float | None = field(default=None, compare=False, repr=False)
    high: float | None = field(default=None, compare=False, repr=False)
    values: np.ndarray | None = field(default=None, compare=False, repr=False)
    obeys: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True)
class NamedType:
    """An argument that is a type, by name."""

    name: str


@dataclass(frozen=True)
class CurrentPlace:
    """An argument that is a place: when the operator is replayed, the device in use."""


@dataclass(frozen=True)
class Unknown:
    """An argument of a kind that cannot be made again. kind: the name of its type."""

    kind: str


@dataclass(frozen=True)
class Amp:
    """The state of automatic mixed precision. level: "O0" for none, "O1", "O2". dtype: the type of 16 bits."""

    level: str = "O0"
    dtype: str = "float16"


@dataclass(frozen=True)
class Call:
    """An operator with the shapes, types and attributes of its arguments.

    owner: "_C_ops", "_legacy_C_ops" or "Tensor", where Paddle's Python code finds the operator. name: its name there.
    arguments, named: as Paddle's Python code gave them, with TensorSpec in place of tensors, in lists and tuples too.
    results: what it returned, in order, None for what is no tensor. amp: the mixed precision that it was called with.
    count: how often it was called. caller: file and line of the code outside Paddle that called it first.
    program: what it runs, where it runs a compiled program.
    """

    owner: str
    name: str
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()
    results: tuple[TensorSpec | None, ...] = ()
    amp: Amp = Amp()
    count: int = 1
    caller: str = ""
    program: Program | None = None

    @property
    def operator(self) -> str:
        """The name without what marks methods and in-place operators: "__radd__" -> "radd", "multiply_" -> "multiply"."""
        return self.name.strip("_")

    @property
    def is_in_place(self) -> bool:
        """Whether the operator writes its result to its first argument."""
        return self.name in ("_setitem_dygraph", "copy_") or (self.name.endswith("_") and not self.name.endswith("__"))

    @property
    def work(self) -> tuple[float, float]:
        """The floating-point operations of forward, and of the gradients."""
        if self.program:
            return self.program.work, 0.0
        tensors = self.tensors()
        forward = work_of(self.operator, [spec.shape for spec in tensors], [spec.shape for spec in self.results if spec])
        return forward, BACKWARD * forward if any(spec.wants_gradient for spec in tensors) and not self.is_in_place else 0.0

    def tensors(self) -> list[TensorSpec]:
        """The tensor arguments in their order, also those within lists."""
        found: list[Any] = []
        self.changed(found.append)
        return [each for each in found if isinstance(each, TensorSpec)]

    def changed(self, change: Callable[[Any], Any]) -> Call:
        """The same call with `change` applied to each argument in their order, and to each element of lists and tuples."""
        named = tuple((key, mapped(value, change)) for key, value in self.named)
        return replace(self, arguments=mapped(self.arguments, change), named=named)


Recording = tuple[Call, ...]
"""The operators of a step, each distinct one once, in the order of the first call."""


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """The value with `change` applied, or to each element of a list or tuple."""
    if isinstance(value, tuple | list):
        return (tuple if isinstance(value, tuple) else list)(mapped(each, change) for each in value)  # also of paddle.Size
    return change(value)


def format_call(call: Call) -> str:
    """The call for a reader: "matmul [2, 16, 128] [128, 512] float32"."""
    tensors = call.tensors()
    shapes = " ".join(str(list(spec.shape)) for spec in tensors[:4]) + (" ..." if len(tensors) > 4 else "")
    types = "/".join(dict.fromkeys(spec.dtype for spec in tensors))
    amp = "" if call.amp.level == "O0" else f", {call.amp.level} {call.amp.dtype}"
    return " ".join(part for part in (call.operator, shapes, types) if part) + amp
