"""Which rank is the root cause of a failed run: the earliest that failed for a reason of its own, or that never arrived.

A collective fails or waits on every rank when one of them is missing, and often an affected rank is the first to complain.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from xpulab.ranks import stacks
from xpulab.ranks.outcome import ABSENT, KILLED, LATE, RAISED, RETURNED, Rank

_OF_ANOTHER = re.compile(
    r"time[sd]?[ -]?out|connection (?:reset|refused|closed|aborted)|closed by peer|broken pipe|unreachable"
    r"|has died|never came|has not come|is gone|was aborted",
    re.IGNORECASE,
)
"""A collective's error message when another rank is missing. Sources: gloo's tcp/pair.cc, Paddle's tcp_utils.cc, xpulab.sim."""
_OWN = re.compile(r"injected fault|come for different things")
_OF_A_CARD = "CustomDevice error"
"""A card's stream reports a collective's failure wherever it is waited for next."""


def find(ranks: Sequence[Rank]) -> tuple[int | None, str]:
    """The rank that is the root cause, and why it is that one; None when all ranks are in the same case.

    Times decide among equals.
    """
    if all(rank.outcome == RETURNED for rank in ranks):
        return None, "all have returned"
    failed = [rank for rank in ranks if rank.outcome == KILLED or (rank.outcome == RAISED and not is_affected(rank))]
    if failed:
        first = min(failed, key=lambda rank: rank.at)
        return first.number, "the first that failed for a reason of its own" if len(ranks) > 1 else ""
    if absent := [rank for rank in ranks if rank.outcome == ABSENT]:
        return absent[0].number, "it never started"
    busy = [rank for rank in ranks if rank.outcome == LATE and not waits(rank)]
    others_wait = any(waits(rank) or is_affected(rank) for rank in ranks)
    if busy and (others_wait or len(busy) == 1):
        behind = min(busy, key=lambda rank: len(rank.steps))
        return behind.number, "the others wait for it" if others_wait else ""
    if not busy and (left := [rank for rank in ranks if rank.outcome == RETURNED]):
        return left[0].number, "it has returned, while others still wait for it"
    return _only_different([rank for rank in ranks if rank.outcome != RETURNED])


def waits(rank: Rank) -> bool:
    """Whether it stands in a collective, or waits for the card that is to do one."""
    return rank.outcome == LATE and stacks.waits(rank.stack)


def is_affected(rank: Rank) -> bool:
    """Whether what it raised came from a collective that another rank had left or never reached."""
    if rank.raised is None or _OWN.search(rank.raised.message) or not _OF_ANOTHER.search(rank.raised.message):
        return False
    return stacks.in_collective(rank.raised.frames) or _OF_A_CARD in rank.raised.message


def _only_different(ranks: Sequence[Rank]) -> tuple[int | None, str]:
    """Of ranks that all work, or all wait: the one that has come less far, else the one that is at another place."""
    if len(ranks) == 1:
        return ranks[0].number, ""
    fewest = min(len(rank.steps) for rank in ranks)
    behind = [rank for rank in ranks if len(rank.steps) == fewest]
    if len(behind) == 1:
        return behind[0].number, "it has come less far than all others"
    places = Counter(map(_place, ranks))
    alone = [rank for rank in ranks if places[_place(rank)] == 1]
    if len(alone) == 1:
        return alone[0].number, "it is at another place than all others"
    affected = [rank for rank in ranks if is_affected(rank)]
    if affected:
        return min(affected, key=lambda rank: rank.at).number, "the first that failed"
    return None, "all are in the same case"


def _place(rank: Rank) -> str:
    return f"{rank.raised.kind if rank.raised else ''}{stacks.place_of_reader(rank.stack)}"
