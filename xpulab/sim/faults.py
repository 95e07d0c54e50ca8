"""Faults of simulated cards: how they are spelt in XPULAB_SIM_FAULTS, and a check of the spelling.

    XPULAB_SIM_FAULTS="flip copy kind=h2d n=3 bit=7; delay collective kind=all_reduce card=1 seconds=0.5"

A fault is ACTION SITE CONDITION ..., several are separated by semicolons.

ACTION  flip    one bit of what came out is inverted
        fail    the thing is not done, and whoever waits for it is told
        delay   it begins seconds=S later
        slow    it takes factor=F times as long; or `delay task`, to make each task of a card longer by so much
        hang    it is not done while anybody waits; XPULAB_SIM_TIMEOUT seconds (30) later whoever waits gives up
        drop    the process ends at once with exit code 113, as if it had been killed: a rank that is gone
        lose    the card is gone: this and everything after it fails

SITE    alloc       device memory is allocated by Paddle's allocator, which deals it out to tensors and keeps it
        copy        kind: h2d, d2h, d2d, p2p (from card to card), set (bytes are set to a value)
        launch      of one of the card's own kernels, kind: contiguous, strided_copy, fill, embedding_grad, assign. No others
                    can be seen: Paddle computes all other operators on the CPU; the card sees only the copies around them
        collective  kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, send, recv
        task        any copy, launch or collective: whatever a stream does
        memory      for flip only: before a task, a bit is inverted in what is allocated of the card's memory;
                    start= and size= (bytes, from the memory's beginning) say where

CONDITION
        when    n=K the K-th time (from 1), from=K from the K-th time on, every=K each K-th time (from the K-th, or the one
                that from= names), p=P with this probability; without any of them each time.
                What is counted is what the other conditions leave
        where   kind=, card=, rank= (of the process: PADDLE_TRAINER_ID, 0 without it), bytes>=B (this many or more)
        what    seconds= (delay), factor= (slow), bit= (flip: which bit of the result; without it one is drawn),
                start=, size= (memory)
        seed=   of what is drawn: the same seed, the same faults (0)

So a rank that never comes is `hang collective rank=1 n=2`, a dead one `drop collective rank=1 n=2`, a stream that hangs
`hang task card=0 n=100`, a card that falls off the bus `lose task n=50`, a slow one `delay task card=1 seconds=0.001`.

Faults are those of one process, and counted in it. Each that comes up is counted in xpulab.sim.counters(card).faults and
says so in a line on stderr, "xpulab sim: fault fired: ...", the first ten times, then the 100th, the 1000th and so on.
While there are faults, all work of a stream is left to its thread, also what is otherwise done at once. Numbers count what
Paddle does, which another release may do otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from xpulab.errors import InputError

ACTIONS = ("flip", "fail", "delay", "slow", "hang", "drop", "lose")
SITES = ("alloc", "copy", "launch", "collective", "task", "memory")
KINDS = {
    "copy": ("h2d", "d2h", "d2d", "p2p", "set"),
    "launch": ("contiguous", "strided_copy", "fill", "embedding_grad", "assign"),
    "collective": ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send", "recv"),
}
_FROM_ZERO = ("card", "rank", "bit", "seed", "start", "bytes")
_FROM_ONE = ("n", "from", "every", "size")
_FRACTIONS = {"p": 1.0, "seconds": 86400.0, "factor": 1e6}
"""The most that each may be."""

_ONLY_WITH = {"seconds": "delay", "factor": "slow", "bit": "flip"}
"""The action that a key belongs to."""


@dataclass(frozen=True)
class Fault:
    """One fault. values: key to value, as in the module's grammar ("bytes" for bytes>=); numbers are numbers."""

    action: str
    site: str
    values: dict[str, int | float | str]


def parse(text: str) -> tuple[Fault, ...]:
    """The faults that the text spells. Raises InputError with the column and the remedy."""
    found, column = [], 1
    for part in text.split(";"):
        if part.strip():
            found.append(_fault(part, column))
        column += len(part) + 1
    return tuple(found)


@dataclass(frozen=True)
class _Word:
    text: str
    column: int

    def refuse(self, why: str) -> NoReturn:
        raise InputError(f"XPULAB_SIM_FAULTS column {self.column}, {self.text!r}: {why}. The grammar: xpulab/sim/faults.py")


def _fault(part: str, column: int) -> Fault:
    words = [_Word(match[0], column + match.start()) for match in re.finditer(r"[^ \t\n]+", part)]
    action = _one_of(words, 0, ACTIONS, "an action")
    site = _one_of(words, 1, SITES, "a site")
    if site == "memory" and action != "flip":
        words[0].refuse("memory can only be flipped")
    if action == "flip" and site in ("alloc", "task"):
        words[1].refuse("flip needs something whose bits it can invert: copy, launch, collective, memory")
    if action == "slow" and site == "alloc":
        words[1].refuse("slow is for what takes time: copy, launch, collective, task")
    values: dict[str, int | float | str] = {}
    for word in words[2:]:
        key, value = _condition(word, action, site)
        if key in values:
            word.refuse(f"{key} is given twice")
        values[key] = value
    for key in ("seconds", "factor"):
        if action == _ONLY_WITH[key] and key not in values:
            words[0].refuse(f"{action} needs {key}=")
    if sum((bool({"n"} & values.keys()), bool({"from", "every"} & values.keys()), "p" in values)) > 1:
        words[0].refuse("of n, from or every, and p only one says when")
    return Fault(action, site, values)


def _condition(word: _Word, action: str, site: str) -> tuple[str, int | float | str]:
    key, _, value = word.text.partition("=")
    # bytes=5 is refused: it reads as if it meant "exactly".
    key = {"bytes>": "bytes", "bytes": ""}.get(key, key)
    if key in ("start", "size") and site != "memory":
        word.refuse(f"{key} goes with memory")
    if key in _ONLY_WITH and action != _ONLY_WITH[key]:
        word.refuse(f"{key} goes with {_ONLY_WITH[key]}")
    if key == "kind":
        return key, _kind(word, value, site)
    if key in _FRACTIONS:
        return key, _fraction(word, key, value)
    if key in _FROM_ONE or key in _FROM_ZERO:
        least = 1 if key in _FROM_ONE else 0
        if not re.fullmatch("[0-9]+", value) or not least <= int(value) < 2**63:
            word.refuse(f"{key} is a whole number from {least} on")
        return key, int(value)
    keys = [key for key in (*_FROM_ONE, *_FROM_ZERO, *_FRACTIONS) if key != "bytes"]
    word.refuse(f"after the site every word is KEY=VALUE, the keys being kind, {', '.join(keys)}, or bytes>=VALUE")


def _kind(word: _Word, value: str, site: str) -> str:
    kinds = [kind for name, kinds in KINDS.items() for kind in kinds if site in (name, "task")]
    if value not in kinds:
        word.refuse(f"kinds of {site} are {', '.join(kinds)}" if kinds else f"{site} has no kinds")
    return value


def _fraction(word: _Word, key: str, value: str) -> float:
    least, most = (1.0 if key == "factor" else 0.0), _FRACTIONS[key]
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not least <= float(value) <= most:
        word.refuse(f"{key} is a number from {least:g} to {most:g}, like {least + 0.5:g}")
    return float(value)


def _one_of(words: list[_Word], index: int, allowed: tuple[str, ...], what: str) -> str:
    if index >= len(words):
        last = words[-1]
        _Word("", last.column + len(last.text)).refuse(f"{what} is missing after {last.text!r}: {', '.join(allowed)}")
    word = words[index]
    if word.text not in allowed:
        word.refuse(f"that is not {what}: {', '.join(allowed)}")
    return word.text
