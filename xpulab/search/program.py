"""A case as a program that needs Paddle and numpy alone: the operators that it calls, in their order, with their tensors.

    program = traced(lambda: measure(case))
    program.source("case.npz")          # Python
    program.arrays                      # what case.npz holds

Operators are noted as recorder.py sees them, and the calls of paddle.grad; what does not lead to a result is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import paddle

from xpulab.checks.compared import Compared
from xpulab.operators.recorder import replaced_operators

_HEAD = """\
# {title}
# {shows}. Needs paddle and numpy, and {arrays} beside this file.
from pathlib import Path

import numpy
import paddle

paddle.set_device("{place}")
given = numpy.load(Path(__file__).with_name("{arrays}"))


def tensor(name, dtype):
    return paddle.to_tensor(given[name]).astype(dtype)

"""
_FOOT = """\

for name, result in {{{results}}}.items():
    error = abs(result.astype("float64").numpy() - given["right " + name]) / given["bound " + name]
    print(name, "largest error / bound:", error.max() if error.size else 0.0)
"""


@dataclass
class Line:
    """A line of the program. text: Python. makes, takes: names of tensors; one that makes none sets a flag."""

    text: str
    makes: tuple[str, ...]
    takes: tuple[str, ...]


@dataclass
class Program:
    """What was called.

    lines: in their order. arrays: by name what the program loads. read: the names of the tensors that were read, in order.
    compared: what the results must be; None when the case did not end, or raised.
    """

    lines: list[Line] = field(default_factory=list)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    compared: Compared | None = None

    def source(self, arrays: str, title: str, place: str) -> str:
        """The program in Python. arrays: the file with them, of numpy.savez. title: a comment. place: of paddle.set_device."""
        facts = {"title": title, "arrays": arrays, "place": place}
        if self.compared is None:
            texts = [*(line.text for line in self.lines), *(f"{name}.numpy()" for name in dict.fromkeys(self.read))]
            return _HEAD.format(**facts, shows="It raises, ends the process, or does not end") + "\n".join(texts) + "\n"
        head = _HEAD.format(**facts, shows="The results in units of their bounds: above 1 is wrong")
        names = list(self.compared.right)
        results = dict(zip(names, self.read[-len(names) :], strict=False))
        wanted, kept = set(results.values()), list[str]()
        for line in reversed(self.lines):
            if not line.makes or wanted & {*line.makes}:
                wanted |= {*line.takes}
                kept.append(line.text)
        listed = ", ".join(f"{name!r}: {tensor}" for name, tensor in results.items())
        return head + "\n".join(reversed(kept)) + "\n" + _FOOT.format(results=listed)

    def keep_right(self, compared: Compared) -> None:
        """What the results must be, and how far they may be off, becomes part of the arrays."""
        self.compared = compared
        for name, right in compared.right.items():
            bound = np.full(np.shape(right), 1e-300) if compared.bound is None else np.asarray(compared.bound[name])
            self.arrays |= {f"right {name}": np.asarray(right), f"bound {name}": bound}


def traced(measure: Callable[[], Any], before: Callable[[Program], None] = lambda program: None) -> Program:
    """The program of what measure() calls; its result, when it is one, is kept with it.

    before: gets the program so far before each call, and before each tensor is read: the process may end there.
    """
    tracer = _Tracer(before)
    with tracer.watching():
        try:
            compared = measure()
        except Exception:  # the program raises it, too
            compared = None
    if isinstance(compared, Compared):
        tracer.program.keep_right(compared)
    return tracer.program


class _Tracer:
    """Notes calls. Each tensor keeps its name for as long as the tracer lives, so that no other gets its id."""

    def __init__(self, before: Callable[[Program], None]) -> None:
        self.program = Program()
        self._before = before
        self._names: dict[int, str] = {}
        self._alive: list[Any] = []
        self._takes_gradient: set[str] = set()
        self._is_inside = False

    def watching(self) -> ExitStack:
        """The block in which calls are noted."""
        stack = ExitStack()
        stack.enter_context(replaced_operators(self._operator))
        for label in ("paddle.grad", "paddle.set_flags", "paddle.seed", "paddle.Tensor.detach"):
            owner, name = paddle.Tensor if "Tensor" in label else paddle, label.rpartition(".")[2]
            stack.enter_context(patch.object(owner, name, self._noted(label, getattr(owner, name))))
        stack.enter_context(patch.object(paddle.Tensor, "numpy", self._reading(paddle.Tensor.numpy)))
        return stack

    def _operator(self, owner: str, name: str, function: Callable, arguments: tuple, named: dict[str, Any]) -> Any:
        return self._noted(f"paddle.{owner}.{name}", function)(*arguments, **named)

    def _noted(self, label: str, function: Callable) -> Callable:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._is_inside:
                return function(*arguments, **named)
            self._is_inside = True
            try:
                takes = list[str]()
                given = [self._text(each, takes) for each in arguments]
                given += [f"{key}={self._text(each, takes)}" for key, each in named.items()]
                line = Line(f"{label}({', '.join(given)})", tuple(takes[:1]), tuple(takes))
                self.program.lines.append(line)  # also of one that raises
                self._before(self.program)
                result = function(*arguments, **named)
                if any(isinstance(each, paddle.Tensor) for each in _flat(result)):
                    line.makes = tuple(self._new(each) for each in _flat(result))
                    line.text = f"{_target(result, iter(line.makes))} = {line.text}"
                return result
            finally:
                self._is_inside = False

        return call

    def _reading(self, numpy_of: Callable) -> Callable:
        def read(tensor: Any) -> Any:
            if not self._is_inside:
                self.program.read.append(self._names.get(id(tensor), "") or self._constant(tensor))
                self._before(self.program)
            return numpy_of(tensor)

        return read

    def _new(self, value: Any) -> str:
        """The name of a result; one that is written in place keeps its own."""
        if id(value) not in self._names:
            self._names[id(value)] = f"t{len(self._names)}"
            self._alive.append(value)
        return self._names[id(value)]

    def _constant(self, tensor: Any) -> str:
        """The name of a tensor that no operator made: it is loaded."""
        name = self._new(tensor)
        dtype = str(tensor.dtype).rpartition(".")[2]
        with paddle.no_grad():
            plain = tensor.detach()
            plain = plain.astype("float32") if dtype in ("float16", "bfloat16") else plain
        self.program.arrays[name] = plain.numpy()
        self.program.lines.append(Line(f'{name} = tensor("{name}", "{dtype}")', (name,), ()))
        return name

    def _text(self, value: Any, takes: list[str]) -> str:
        """An argument in Python."""
        if isinstance(value, paddle.Tensor):
            name = self._names.get(id(value)) or self._constant(value)
            if not value.stop_gradient and value.is_leaf and name not in self._takes_gradient:
                self._takes_gradient.add(name)
                self.program.lines.append(Line(f"{name}.stop_gradient = False", (name,), (name,)))
            takes.append(name)
            return name
        if isinstance(value, list | tuple):
            inner = ", ".join(self._text(each, takes) for each in value)
            return f"({inner},)" if isinstance(value, tuple) else f"[{inner}]"
        if isinstance(value, dict):
            return repr(value)
        if isinstance(value, slice):
            return f"slice({', '.join(self._text(each, takes) for each in (value.start, value.stop, value.step))})"
        if isinstance(value, paddle.dtype | paddle.base.core.VarDesc.VarType):
            return f"paddle.{str(value).rpartition('.')[2].lower()}"
        if "Place" in type(value).__name__:
            return "paddle.framework._current_expected_place()"
        if isinstance(value, float) and not np.isfinite(value):
            return f"float('{value}')"
        return "..." if value is Ellipsis else repr(value.item() if isinstance(value, np.generic) else value)


def _flat(result: Any) -> list[Any]:
    return [each for part in result for each in _flat(part)] if isinstance(result, list | tuple) else [result]


def _target(result: Any, names: Any) -> str:
    """What the result is assigned to."""
    if isinstance(result, list | tuple):
        return f"[{', '.join(_target(each, names) for each in result)}]"
    return str(next(names))
