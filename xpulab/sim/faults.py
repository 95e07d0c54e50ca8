"""Faults of simulated cards: the grammar of XPULAB_SIM_FAULTS. The plug-in reads them and checks their values.

    XPULAB_SIM_FAULTS="flip copy kind=h2d n=3 bit=7; delay collective kind=all_reduce card=1 seconds=0.5"

A fault is ACTION SITE CONDITION ...; semicolons separate several faults.

ACTION  flip    inverts one bit of the output
        fail    the operation does not run; every wait for it raises an error
        delay   the operation starts seconds=S later
        slow    the operation takes factor=F times as long (to make each task longer by a fixed time, use `delay task`)
        hang    the operation does not finish before the timeout: a wait for it fails after XPULAB_SIM_TIMEOUT seconds (30)
        drop    the process ends at once, with exit code 113, as if it had been killed: a dead rank
        lose    the card is lost: this operation and all later ones fail
        reorder the operation, a launch of kind=embedding_grad, adds its terms in another order each time, and in each process:
                a card that does not repeat itself, as one whose kernel adds by atomic operations

SITE    alloc       Paddle's allocator allocates device memory, which it caches and divides among tensors
        copy        kind: h2d, d2h, d2d, p2p (from card to card), set (fills bytes with a value)
        launch      of one of the card's own kernels, kind: contiguous, strided_copy, fill, embedding_grad, assign.
                    Paddle runs all other operators on the CPU; the card sees only the copies before and after them
        collective  kind: all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, send, recv
        task        any copy, launch or collective

CONDITION
        when    n=K at the K-th operation (from 1), from=K at the K-th and all later ones; default: at each one.
                Only operations that match the other conditions are counted
        where   kind=, card=, rank= (of the process: PADDLE_TRAINER_ID, default 0)
        what    seconds= (delay), factor= (slow), bit= (flip: which bit of the output; default: another one each time, the
                same in each process)

Examples: `hang collective rank=1 n=2` is a missing rank, `drop collective rank=1 n=2` a dead rank, `hang task card=0 n=100` a
hanging stream, `lose task n=50` a card that fell off the bus, `delay task card=1 seconds=0.001` a slow card.

Each process has its own faults and its own counts. Each injected fault is reported on stderr, as "xpulab sim: fault injected:
...", the first ten times, then the 100th, the 1000th and so on. While faults are set, all work of a stream runs on its
thread, also short work that otherwise runs at once. Counts depend on what Paddle does, which can differ between releases.
"""

from __future__ import annotations

import re

from xpulab.errors import InputError

_FAULT = re.compile(
    r"(flip|fail|delay|slow|hang|drop|lose|reorder)\s+(alloc|copy|launch|collective|task)"
    r"(\s+(kind|n|from|card|rank|seconds|factor|bit)=\S+)*"
)


def parse(text: str) -> tuple[str, ...]:
    """The faults of the text, each as text. Raises InputError for one that is not ACTION SITE KEY=VALUE ... of the grammar."""
    faults = tuple(part.strip() for part in text.split(";") if part.strip())
    for fault in faults:
        if not _FAULT.fullmatch(fault):
            raise InputError(f"XPULAB_SIM_FAULTS: {fault!r} is not ACTION SITE KEY=VALUE ...; see xpulab/sim/faults.py")
    return faults
