"""What came back from a node of a fleet run."""

from __future__ import annotations

from dataclasses import dataclass

LEFT_OUT, LOST, SILENT, WAITING, CANCELLED = "left out", "lost", "silent", "waiting", "cancelled"
OUTCOMES = ("done", "late", "disk", "undelivered", "failed", LEFT_OUT, LOST, SILENT, WAITING, CANCELLED)
"""How a node's part can end: what a task says itself (xpulab.fleet.cluster.messages.ENDED), and what is seen from outside.

left out: drained or down from the beginning. lost: the task ended without a message. silent: the node never answered, or
stopped answering. waiting: it never got a turn. cancelled: the fleet run was interrupted first.
"""


@dataclass(frozen=True)
class Answer:
    """node: its name. outcome: of OUTCOMES. sentence: what was wrong, "" when nothing was.

    attempts: how often the task was started. seconds: how long the last one took, from its start to its end.
    bundle: the name of the bundle's file, None when there is none.
    gone: what the scheduler says of a node that delivered and stopped answering afterwards; "" for others.
    """

    node: str
    outcome: str
    sentence: str
    attempts: int = 0
    seconds: float = 0.0
    bundle: str | None = None
    gone: str = ""
