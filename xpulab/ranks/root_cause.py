"""Which rank is to blame when a run fails: the earliest that failed for a reason of its own, or that never arrived.

A collective fails or waits on every rank when one of them is missing, and often the first to complain is a victim.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xpulab.ranks import stacks

RETURNED, RAISED, KILLED, LATE, ABSENT = "returned", "raised", "killed", "late", "absent"

_OF_ANOTHER = re.compile(
    r"time[sd]?[ -]?out|connection (?:reset|refused|closed|aborted)|closed by peer|broken pipe|unreachable"
    r"|has died|never came|has not come|is gone|was aborted",
    re.IGNORECASE,
)
"""What a collective says when another rank is missing. Sources: gloo's tcp/pair.cc, Paddle's tcp_utils.cc, xpulab.sim."""
_OWN = re.compile(r"injected fault|come for different things")
_OF_A_CARD = "CustomDevice error"
"""A card's stream reports a collective's failure wherever it is waited for next."""


@dataclass(frozen=True)
class End:
    """How one rank ended.

    outcome: RETURNED; RAISED; KILLED (it ended without a word, by a signal or an exit of its own); LATE (it was still at
    work when the run was ended); ABSENT (it never started). at: time.monotonic() of its end, where there was one.
    kind, message, frames: of what it raised, frames as in inside.Raised. stack: of one that was late, or wrote one when it
    was killed. steps: how often it said which step it had reached. had_returned: its function had, before it was killed or
    found to be late.
    """

    rank: int
    outcome: str
    at: float = 0.0
    kind: str = ""
    message: str = ""
    frames: tuple[tuple[str, str], ...] = ()
    stack: stacks.Stack = stacks.NONE
    steps: int = 0
    had_returned: bool = False

    @property
    def waits(self) -> bool:
        """Whether it stands in a collective, or waits for the card that is to do one."""
        return self.outcome == LATE and stacks.waits(self.stack)

    @property
    def is_affected(self) -> bool:
        """Whether what it raised came from a collective that another rank had left or never reached."""
        if self.outcome != RAISED or _OWN.search(self.message) or not _OF_ANOTHER.search(self.message):
            return False
        return stacks.in_collective(self.frames) or _OF_A_CARD in self.message


def find(ends: Sequence[End]) -> tuple[int | None, str]:
    """The rank to blame, and why it and no other; None when all ranks are in the same case. Times decide among equals."""
    if all(end.outcome == RETURNED for end in ends):
        return None, "all have returned"
    failed = [end for end in ends if end.outcome == KILLED or (end.outcome == RAISED and not end.is_affected)]
    if failed:
        first = min(failed, key=lambda end: end.at)
        return first.rank, "the first that failed for a reason of its own" if len(ends) > 1 else ""
    if absent := [end for end in ends if end.outcome == ABSENT]:
        return absent[0].rank, "it never started"
    busy = [end for end in ends if end.outcome == LATE and not end.waits]
    others_wait = any(end.waits or end.is_affected for end in ends)
    if busy and (others_wait or len(busy) == 1):
        behind = min(busy, key=lambda end: end.steps)
        return behind.rank, "the others wait for it" if others_wait else ""
    if not busy and (left := [end for end in ends if end.outcome == RETURNED]):
        return left[0].rank, "it has returned, while others still wait for it"
    return _who_stands_alone([end for end in ends if end.outcome != RETURNED])


def _who_stands_alone(ends: Sequence[End]) -> tuple[int | None, str]:
    """Of ranks that all work, or all wait: the one that has come less far, else the one that is at another place."""
    if len(ends) == 1:
        return ends[0].rank, ""
    fewest = [end for end in ends if end.steps == min(each.steps for each in ends)]
    if len(fewest) == 1:
        return fewest[0].rank, "it has come less far than all others"
    places = Counter(_place(end) for end in ends)
    alone = [end for end in ends if places[_place(end)] == 1]
    if len(alone) == 1:
        return alone[0].rank, "it is at another place than all others"
    suffering = [end for end in ends if end.is_affected]
    if suffering:
        return min(suffering, key=lambda end: end.at).rank, "the first that failed"
    return None, "all are in the same case"


def _place(end: End) -> str:
    return f"{end.kind}{stacks.place_of_reader(end.stack)}"
