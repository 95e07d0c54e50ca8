"""What a task on a node writes for the machine that submitted it: lines of its standard output, between those of the run.

They come through srun or ssh, so they arrive also when neither the node's disk nor the shared folder can be written.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from xpulab.messages import N_

PREFIX = "xpulab-task "

ENDED = (N_("done"), N_("late"), N_("disk"), N_("undelivered"), N_("failed"))
"""How a task can end.

done: the run has a verdict, and its bundle was delivered. late: the run did not end within its time limit.
disk: the node's scratch folder cannot be written. undelivered: the shared folder cannot. failed: the run left no verdict.
"""

_PART_BYTES = 6000
"""Of a bundle in one line: ClusterShell and Slurm read lines, and short ones would be many."""


@dataclass(frozen=True)
class Started:
    """The task runs. host: the name that the node has for itself."""

    host: str


@dataclass(frozen=True)
class Part:
    """A part of the bundle, in order, where no folder is shared. text: base64."""

    text: str


@dataclass(frozen=True)
class Ended:
    """The task's last message. outcome: of ENDED. sentence: what was wrong, "" when nothing was.

    code: the exit code of the run; None when there was none. seconds: how long the task took.
    """

    outcome: str
    sentence: str
    code: int | None
    seconds: float


Message = Started | Part | Ended
_KINDS = {kind.__name__: kind for kind in (Started, Part, Ended)}


def format_message(message: Message) -> str:
    """The message as one line, without the newline."""
    return PREFIX + json.dumps({"message": type(message).__name__, **asdict(message)})


def parse_message(line: str) -> Message | None:
    """The message of a line; None for a line of the run itself, and for one that was cut off."""
    if not line.startswith(PREFIX):
        return None
    try:
        stored = json.loads(line.removeprefix(PREFIX))
        message = _KINDS[stored.pop("message")](**stored)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return None if isinstance(message, Ended) and message.outcome not in ENDED else message


def parts_of(bundle: bytes) -> Iterator[Part]:
    """A bundle as messages."""
    for start in range(0, len(bundle), _PART_BYTES):
        yield Part(base64.b64encode(bundle[start : start + _PART_BYTES]).decode("ascii"))


def content_of(parts: list[Part]) -> bytes:
    """The bundle that the parts are of. Raises ValueError when one is damaged."""
    return b"".join(base64.b64decode(part.text, validate=True) for part in parts)
