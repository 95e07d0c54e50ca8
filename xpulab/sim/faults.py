"""Faults of simulated cards: the grammar of XPULAB_SIM_FAULTS, and its parser.

    XPULAB_SIM_FAULTS="flip copy kind=h2d n=3 bit=7; delay collective kind=all_reduce card=1 seconds=0.5"

A fault is ACTION SITE CONDITION ...; semicolons separate several faults.

ACTION  flip    inverts one bit of the output
        fail    the operation does not run; every wait for it raises an error
        delay   the operation starts seconds=S later
        slow    the operation takes factor=F times as long (to make each task longer by a fixed time, use `delay task`)
        hang    the operation does not finish before the timeout: a wait for it fails after XPULAB_SIM_TIMEOUT seconds (30)
        drop    the process ends at once, with exit code 113, as if it had been killed: a dead rank
        lose    the card is lost: this operation and all later ones fail

SITE    alloc       Paddle's allocator allocates device memory, which it caches and divides among tensors
        copy        kind: h2d, d2h, d2d, p2p (from card to card), set (fills bytes with a value)
        launch      of one of the card's own kernels, kind: contiguous, strided_copy, fill, embedding_grad, assign.
                    Paddle runs all other operators on the CPU; the card sees only the copies before and after them
        collective  kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, send, recv
        task        any copy, launch or collective
        memory      only for flip: before a task, inverts a bit of the card's allocated memory,
                    within start= and size= (bytes, from the beginning of the memory)

CONDITION
        when    n=K at the K-th operation (from 1), from=K at the K-th and all later ones, every=K at each K-th one
                (from the K-th, or from the one that from= gives), p=P with this probability; default: at each one.
                Only operations that match the other conditions are counted
        where   kind=, card=, rank= (of the process: PADDLE_TRAINER_ID, default 0), bytes>=B (at least this many)
        what    seconds= (delay), factor= (slow), bit= (flip: which bit of the output; default: a random one),
                start=, size= (memory)
        seed=   of random choices: the same seed gives the same faults (default 0)

Examples: `hang collective rank=1 n=2` is a missing rank, `drop collective rank=1 n=2` a dead rank, `hang task card=0 n=100` a
hanging stream, `lose task n=50` a card that fell off the bus, `delay task card=1 seconds=0.001` a slow card.

Each process has its own faults and its own counts. Each injected fault is counted in xpulab.sim.counters(card).faults and
reported on stderr, "xpulab sim: fault injected: ...": the first ten times, then the 100th, the 1000th and so on. While
faults are set, all work of a stream runs on its thread, also short work that otherwise runs at once. Counts depend on what
Paddle does, which can differ between releases.
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
"""The largest value of each."""

_ONLY_WITH = {"seconds": "delay", "factor": "slow", "bit": "flip"}
"""The only action that takes this key."""


@dataclass(frozen=True)
class Fault:
    """One fault. action, site: see the grammar above. values: key ("bytes" for bytes>=) to value, numbers as int or float."""

    action: str
    site: str
    values: dict[str, int | float | str]


def parse(text: str) -> tuple[Fault, ...]:
    """The faults of the text. Raises InputError with the column and what is allowed there."""
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

    def reject(self, reason: str) -> NoReturn:
        raise InputError(
            f"XPULAB_SIM_FAULTS column {self.column}, {self.text!r}: {reason}. For the grammar see xpulab/sim/faults.py"
        )


def _fault(part: str, column: int) -> Fault:
    words = [_Word(match[0], column + match.start()) for match in re.finditer(r"[^ \t\n]+", part)]
    action = _one_of(words, 0, ACTIONS, "an action")
    site = _one_of(words, 1, SITES, "a site")
    if site == "memory" and action != "flip":
        words[0].reject("site memory needs the action flip")
    if action == "flip" and site in ("alloc", "task"):
        words[1].reject("flip needs a site with output: copy, launch, collective, memory")
    if action == "slow" and site == "alloc":
        words[1].reject("slow needs one of the sites copy, launch, collective, task")
    values: dict[str, int | float | str] = {}
    for word in words[2:]:
        key, value = _condition(word, action, site)
        if key in values:
            word.reject(f"{key} is given twice")
        values[key] = value
    for key in ("seconds", "factor"):
        if action == _ONLY_WITH[key] and key not in values:
            words[0].reject(f"{action} needs {key}=")
    if sum((bool({"n"} & values.keys()), bool({"from", "every"} & values.keys()), "p" in values)) > 1:
        words[0].reject("give only one of: n; from and every; p")
    return Fault(action, site, values)


def _condition(word: _Word, action: str, site: str) -> tuple[str, int | float | str]:
    key, _, value = word.text.partition("=")
    # bytes=5 is rejected: it looks like "exactly 5".
    key = {"bytes>": "bytes", "bytes": ""}.get(key, key)
    if key in ("start", "size") and site != "memory":
        word.reject(f"{key} needs the site memory")
    if key in _ONLY_WITH and action != _ONLY_WITH[key]:
        word.reject(f"{key} needs the action {_ONLY_WITH[key]}")
    if key == "kind":
        return key, _kind(word, value, site)
    if key in _FRACTIONS:
        return key, _fraction(word, key, value)
    if key in _FROM_ONE or key in _FROM_ZERO:
        least = 1 if key in _FROM_ONE else 0
        if not re.fullmatch("[0-9]+", value) or not least <= int(value) < 2**63:
            word.reject(f"{key} must be a whole number of at least {least}")
        return key, int(value)
    keys = [key for key in (*_FROM_ONE, *_FROM_ZERO, *_FRACTIONS) if key != "bytes"]
    word.reject(f"after the site give KEY=VALUE with a key of kind, {', '.join(keys)}, or bytes>=VALUE")


def _kind(word: _Word, value: str, site: str) -> str:
    kinds = [kind for name, kinds in KINDS.items() for kind in kinds if site in (name, "task")]
    if value not in kinds:
        word.reject(f"kinds of {site} are {', '.join(kinds)}" if kinds else f"{site} has no kinds")
    return value


def _fraction(word: _Word, key: str, value: str) -> float:
    least, most = (1.0 if key == "factor" else 0.0), _FRACTIONS[key]
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", value) or not least <= float(value) <= most:
        word.reject(f"{key} must be a number from {least:g} to {most:g}, for example {least + 0.5:g}")
    return float(value)


def _one_of(words: list[_Word], index: int, allowed: tuple[str, ...], what: str) -> str:
    if index >= len(words):
        last = words[-1]
        _Word("", last.column + len(last.text)).reject(f"{what} is missing after {last.text!r}; choose {', '.join(allowed)}")
    word = words[index]
    if word.text not in allowed:
        word.reject(f"not {what}; choose {', '.join(allowed)}")
    return word.text
