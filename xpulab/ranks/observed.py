"""One rank as the notebook sees it during a run: its connection, its process, and what it has sent so far."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, field

import psutil

from xpulab.ranks import channel, stacks
from xpulab.ranks.outcome import ABSENT, KILLED, LATE, RAISED, RETURNED, Raised, RankOutcome

_STACK_BYTES = 1 << 20


@dataclass(eq=False)
class ObservedRank:
    """What is known of a rank by now.

    peer, process: None until it has said which rank it is. entered: whether it has called the function. returned: the
    serialized return value. at: time.monotonic() of its end. ended, status: whether its process has ended, and how.
    stack_text: what faulthandler wrote.
    """

    number: int
    peer: channel.Peer | None = None
    process: psutil.Process | None = None
    entered: bool = False
    steps: list[str] = field(default_factory=list)
    returned: bytes | None = None
    raised: Raised | None = None
    at: float = 0.0
    ended: bool = False
    status: int | None = None
    stack_text: str = ""

    @property
    def done(self) -> bool:
        """Whether there is nothing more to come from it."""
        return self.returned is not None or self.raised is not None or self.ended

    def take(self, kind: bytes, at: float, body: bytes) -> None:
        """Note a message from the rank; at: the time.monotonic() at which it was sent."""
        if kind == channel.ENTERED:
            self.entered = True
        elif kind == channel.STEP:
            self.steps.append(body.decode(errors="replace"))
        elif kind == channel.RETURNED:
            self.returned, self.at = body, at
        elif kind == channel.RAISED:
            self.raised, self.at = pickle.loads(body), at

    def read_stack_file(self) -> str:
        """All that faulthandler has written in this rank so far."""
        if self.peer is None or self.peer.stack is None:
            return ""
        return os.pread(self.peer.stack, _STACK_BYTES, 0).decode(errors="replace")

    def outcome(self, late: bool, printed: str) -> RankOutcome:
        """The record of this rank at the end of the run. late: whether it was still at work then."""
        return RankOutcome(
            rank=self.number,
            outcome=self._outcome(late),
            at=self.at,
            raised=self.raised,
            stack=stacks.NONE if self.raised else stacks.read(self.stack_text),
            steps=tuple(self.steps),
            value=self.returned,
            status=self.status,
            printed=printed,
        )

    def _outcome(self, late: bool) -> str:
        if self.raised is not None:
            return RAISED
        if self.peer is None:
            return ABSENT
        if late:
            return LATE
        return RETURNED if self.returned is not None and self.status in (0, None) else KILLED
