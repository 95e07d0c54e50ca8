"""Count, with Paddle's profiler, the operators that ran, so that those which the recorder did not see are named.

Paddle's profiler notes every operator in C++, with its time and thread. The recorder notes when it was active. An operator
that began at another time was not recorded: for instance one that C++ code calls without Python.
Source: paddle.profiler.Profiler and RecordEvent; measured on Paddle 3.3.1 on the CPU, not run on a GPU or XPU.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from paddle import profiler

_MARK = "xpulab recorder"
_OPERATOR = " dygraph"
_BACKWARD = re.compile(r"Global_(.+)GradNode$")


class Census:
    """What ran between begin() and end()."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._not_recorded: dict[str, int] = {}

    def begin(self) -> None:
        """Start the profiler. Nothing is written to a file. A process can have one profiler at a time."""
        self._profiler = profiler.Profiler(targets=[profiler.ProfilerTarget.CPU], on_trace_ready=lambda _: None)
        if self._profiler.profiler is None:
            self._profiler = None
            self._not_recorded = {"unknown, because the script uses Paddle's profiler itself": 0}
        else:
            self._profiler.start()

    def end(self) -> None:
        """Stop the profiler and count."""
        if self._profiler:
            self._profiler.stop()
            self._not_recorded = _not_recorded(self._profiler.profiler_result.get_data().values())
            self._profiler = None

    @contextmanager
    def marked(self) -> Iterator[None]:
        """The recorder is active inside the block."""
        event = profiler.RecordEvent(_MARK)
        event.begin()
        try:
            yield
        finally:
            event.end()

    def not_recorded(self) -> dict[str, int]:
        """By name how often an operator ran while the recorder was not active; of backward, where forward was not recorded."""
        return self._not_recorded


def _not_recorded(roots: Iterable[Any]) -> dict[str, int]:
    missed: Counter[str] = Counter()
    backward: Counter[str] = Counter()
    recorded = set()
    for root in roots:
        nodes = list(_nodes(root))
        marks = sorted((node.start_ns, node.end_ns) for node in nodes if node.name == _MARK)
        for node in nodes:
            if node.name.endswith(_OPERATOR):
                operator = node.name.removesuffix(_OPERATOR)
                if _within(node.start_ns, marks):
                    recorded.add(_in_one_word(operator))
                else:
                    missed[operator] += 1
            elif found := _BACKWARD.match(node.name):
                backward[found[1]] += 1
    seen = recorded | {_in_one_word(name) for name in missed}
    lost = {f"{name}, backward": n for name, n in backward.items() if name.lower() not in seen and "PyLayer" not in name}
    return {**missed, **lost}


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children_node:
        yield from _nodes(child)


def _within(moment: int, marks: list[tuple[int, int]]) -> bool:
    """Whether a moment is in one of the intervals, which do not overlap."""
    position = bisect_right(marks, (moment, 1 << 63)) - 1
    return position >= 0 and marks[position][0] <= moment <= marks[position][1]


def _in_one_word(operator: str) -> str:
    """ "cross_entropy_with_softmax" -> "crossentropywithsoftmax", as the names of backward nodes in lower case."""
    return operator.replace("_", "").lower()
