"""The lines between `xpulab fleet links` and the tasks that it starts on the nodes: JSON, in parts that srun does not divide.

srun sends each line of its standard input to every task, and passes on each line that a task prints, whole when it is shorter
than 1024 bytes. So a longer message is sent in parts. What else a task prints is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

HELLO, READY, REPORT, PORT_TAKEN = "hello", "ready", "report", "port taken"
"""Kinds of messages from a task: it has started; it may be given trials; what became of its rank in one; a port of the
trial is in use there."""

SETUP, TRIAL, STOP = "setup", "trial", "stop"
"""Kinds of messages to all tasks: what all trials share; a trial; the end of one, because a rank has failed."""

PASSED, WRONG, RAISED, KILLED, LATE, STOPPED = "passed", "wrong", "raised", "killed", "late", "stopped"
"""What became of a rank: PASSED; WRONG, a check failed; RAISED, an error; KILLED, its process ended by itself; LATE, it was
still at work at the time limit; STOPPED, it was still at work when the trial was ended because another rank had failed."""

_MARK = "xpulab-links"
_PART = 700
_MORE, _LAST = "+", "."

Message = tuple[str, dict[str, Any]]
"""The kind of a message, and its fields."""


@dataclass(frozen=True)
class Setup:
    """What all trials share.

    device: cpu, gpu, xpu or sim. cards: ranks of each node. addresses: of each node, by its name. seed: of the values.
    start_seconds: until a rank has imported Paddle. trial_seconds: from then until all ranks are done.
    """

    device: str
    cards: int
    addresses: Mapping[str, str]
    seed: int
    start_seconds: float
    trial_seconds: float


@dataclass(frozen=True)
class Group:
    """A trial. number: unique in the step. nodes: whose tasks are its ranks, in this order. port: the first of its ports.

    rates: whether rates are measured too.
    """

    number: int
    nodes: Sequence[str]
    port: int
    rates: bool


@dataclass(frozen=True)
class RankReport:
    """What became of one rank in a trial.

    outcome: one of PASSED to STOPPED. reason: one line, "" when it passed. step: what it did last. steps: how many it began.
    bad: its checks that did not pass, the first ten: name; outcome, failed or broken; detail, what was measured and expected,
    or why it is broken. passed: how many did. skipped: reasons by the names of checks. rates: GB/s by name.
    printed: the end of what it printed, when it did not pass.
    """

    trial: int
    rank: int
    node: str
    outcome: str
    reason: str
    step: str
    steps: int
    bad: Sequence[Mapping[str, str]]
    passed: int
    skipped: Mapping[str, str]
    rates: Mapping[str, float]
    printed: str


def dumps(kind: str, body: Setup | Group) -> str:
    """A message to all tasks: one line."""
    return json.dumps({"kind": kind, **asdict(body)})


def loads(text: str) -> Message:
    """The message in a text of dumps."""
    fields = json.loads(text)
    return fields.pop("kind"), fields


def lines_of(task: int, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a message from a task."""
    text = json.dumps({"kind": kind, **body})
    for at in range(0, len(text), _PART):
        yield f"{_MARK} {task} {_MORE if at + _PART < len(text) else _LAST} {text[at : at + _PART]}\n"


class Reader:
    """Puts the messages of all tasks together from the lines that arrive: those of one task are in order."""

    def __init__(self) -> None:
        self._begun: dict[str, str] = {}

    def read(self, line: str) -> Message | None:
        """The message that this line completes; None while there is none, and for other lines."""
        mark, _, rest = line.rstrip("\n").partition(" ")
        if mark != _MARK:
            return None
        task, more, part = rest.split(" ", 2)
        text = self._begun.pop(task, "") + part
        if more == _LAST:
            return loads(text)
        self._begun[task] = text
        return None
