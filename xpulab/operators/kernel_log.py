"""Which kernels a step launches: name, type and the place that Paddle chose, forward, backward and optimizer.

    with logged() as launches:
        step()

Paddle logs each choice of a kernel at verbosity 6 ("matmul API kernel key: [CPU, NCHW, float32]"), and at verbosity 1 each
kernel that a device lacks ("missing XPU kernel: ..., fallbacking to CPU one!"). Both go to standard error, a file meanwhile.
A mark before each operator that Python code calls says which line calls it; a kernel of backward is that of the line whose
operator it belongs to. At this verbosity Paddle names each result after its operator and shape, the state of an optimizer
too: a training that is logged cannot be saved.
Source: paddle/phi/api/lib and phi/core/kernel_factory.cc; measured on Paddle 3.3.1 on the CPU and on simulated cards.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle
from paddle.base import core

from xpulab.operators.recorder import caller, replaced_operators
from xpulab.sim.attach import captured_stderr

VERBOSITY = 6
"""Of Paddle's log; below it there is no line for a kernel that the device has."""

_MARK = "@xpulab "
_PROGRAM = "in a compiled program"
_CHOSEN = re.compile(r"\] (\w+) API kernel key: \[.*, (\w+)\]")
_RAN = re.compile(r"After: Place\(.*?\) Op\(pd_op\.(\w+)\), (?=.*dtype=(?:\w+::)*((?:bf|b)?float\w*|double);|.*?dtype=(\w+);)")
_TYPES = {"float": "float32", "double": "float64", "int": "int32", "int64_t": "int64"}
"""How the log of a program calls types that have other names elsewhere."""
_MISSING = re.compile(r"missing \S+ kernel: (\w+), expected_kernel_key:\(.*, (\w+)\), fallbacking to CPU")
_LIBRARIES, _LEVEL = ("libs/libphi_core.so", "base/libpaddle.so"), "_ZN3fLI17FLAGS_minloglevelE"


@dataclass(frozen=True)
class Launch:
    """A kernel of the step. name: as Paddle's phi library calls it.

    dtype: the type that it was chosen for, as "float32". calls: how often. fell_back: how often the CPU computed it because the
    device has no such kernel.
    caller: the file and line that calls its operator most often, "" where no line is known.
    """

    name: str
    dtype: str
    calls: int
    fell_back: int
    caller: str


@contextmanager
def logged() -> Iterator[list[Launch]]:
    """Log the kernels that are launched inside the block; at its end they are in the list, the most frequent first.

    What the process writes to standard error meanwhile is lost.
    """
    found: list[Launch] = []
    with replaced_operators(_marked), _shows_information(), captured_stderr() as lines:
        core.set_vlog_level({"*": VERBOSITY})
        try:
            yield found
        finally:
            core.set_vlog_level({"*": 0})
    found += launches(lines)


def _marked(_owner: str, _name: str, function: Callable, arguments: tuple, named: dict[str, Any]) -> Any:
    os.write(2, f"\n{_MARK}{caller()}\n".encode())
    try:
        return function(*arguments, **named)
    finally:
        os.write(2, f"\n{_MARK}\n".encode())


def launches(lines: Iterable[str]) -> list[Launch]:
    """The kernels in the lines of a log, the most frequent first."""
    calls: Counter[tuple[str, str]] = Counter()
    fell_back: Counter[tuple[str, str]] = Counter()
    callers: dict[str, Counter[str]] = {}
    line_of_code = ""
    for line in lines:
        if line.startswith(_MARK):
            line_of_code = line.removeprefix(_MARK)
        elif found := _MISSING.search(line):
            fell_back[found[1], found[2]] += 1
        elif found := _CHOSEN.search(line) or _RAN.search(line):
            name, dtype = found[1].removesuffix("_"), found[2] or found[3]  # without what marks those in place
            calls[name, _TYPES.get(dtype, dtype)] += 1
            caller_of_it = _PROGRAM if found.re is _RAN else line_of_code
            if caller_of_it:
                callers.setdefault(name, Counter())[caller_of_it] += 1
    names = calls | fell_back  # the larger count: C++ calls some without a choice in the log
    return [
        Launch(name, dtype, count, fell_back[name, dtype], _most_frequent(callers, name))
        for (name, dtype), count in names.most_common()
    ]


def cpu_types() -> dict[str, list[str]]:
    """By kernel the types that the CPU has it for, as this wheel lists them."""
    listed = core._get_registered_phi_kernels("function")  # type: ignore[attr-defined]
    parts = {name: [each.strip("()").split(", ") for each in kinds] for name, kinds in listed.items()}
    return {name: sorted({each[-1] for each in kinds if each[0] == "CPU"}) for name, kinds in parts.items()}


def _most_frequent(callers: dict[str, Counter[str]], kernel: str) -> str:
    """The line that calls the operator of a kernel most often; of a kernel of backward that of forward."""
    own = callers.get(kernel) or callers.get(re.sub(r"(_double)?_grad$", "", kernel)) or Counter()
    return own.most_common(1)[0][0] if own else ""


@contextmanager
def _shows_information() -> Iterator[None]:
    """Paddle's lines of information are written, whatever GLOG_minloglevel said. Raises RuntimeError when they cannot be."""
    found = []
    for library in _LIBRARIES:
        with suppress(OSError, ValueError):
            found.append(ctypes.c_int.in_dll(ctypes.CDLL(str(Path(paddle.__file__).parent / library)), _LEVEL))
    if not found:
        raise RuntimeError(f"no library of {_LIBRARIES} has {_LEVEL}: this release of Paddle logs in another way")
    before = [each.value for each in found]
    for each in found:
        each.value = 0
    try:
        yield
    finally:
        for each, value in zip(found, before, strict=True):
            each.value = value
