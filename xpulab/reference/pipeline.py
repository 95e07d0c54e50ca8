"""When the ranks of a pipeline work, and what they keep in memory: computed from the order of each rank's work.

A piece of work is (kind, stage, micro-batch), kind being "F" for a forward and "B" for a backward pass. Stage s is on rank
s modulo the number of ranks. The unit of time is one forward pass of one micro-batch through all layers of a rank; a backward
pass takes twice as long. Moving data between ranks takes no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

Piece: TypeAlias = tuple[str, int, int]
"""(kind, stage, micro-batch): ("F", 0, 3) is the forward pass of micro-batch 3 through stage 0."""

BACKWARD = 2
"""How many forward passes a backward pass takes as long as."""


def end_times(orders: Sequence[Sequence[Piece]], stages_per_rank: int = 1) -> dict[Piece, float]:
    """When each piece of work ends, when every rank works in its order and as early as it can.

    orders: the pieces of each rank, in the order of its work. Raises RuntimeError when the ranks wait for each other for ever.
    """
    stages = len(orders) * stages_per_rank
    queues, free, ends = [list(order) for order in orders], [0.0] * len(orders), dict[Piece, float]()
    while any(queues):
        before = len(ends)
        for rank, queue in enumerate(queues):
            while queue and all(need in ends for need in needed_by(queue[0], stages)):
                piece = queue.pop(0)
                start = max([free[rank], *(ends[need] for need in needed_by(piece, stages))])
                free[rank] = ends[piece] = start + duration(piece, stages_per_rank)
        if len(ends) == before:
            raise RuntimeError("this order of work ends in a deadlock: each rank waits for another one")
    return ends


def duration(piece: Piece, stages_per_rank: int = 1) -> float:
    """How long this piece of work takes."""
    return (1 if piece[0] == "F" else BACKWARD) / stages_per_rank


def needed_by(piece: Piece, stages: int) -> list[Piece]:
    """The pieces of work whose results this one needs."""
    kind, stage, micro_batch = piece
    if kind == "F":
        return [("F", stage - 1, micro_batch)] if stage > 0 else []
    return [("F", stage, micro_batch)] + ([("B", stage + 1, micro_batch)] if stage + 1 < stages else [])


def bubble(orders: Sequence[Sequence[Piece]], stages_per_rank: int = 1) -> float:
    """The share of the time in which a rank has nothing to do, until the last rank has finished. All have the same work."""
    work = sum(duration(piece, stages_per_rank) for piece in orders[0])
    return 1 - work / max(end_times(orders, stages_per_rank).values())


def most_kept(order: Sequence[Piece], stages_per_rank: int = 1) -> float:
    """The most micro-batches whose activations a rank keeps at a time; one in one of v stages counts as 1 / v."""
    kept, most = 0, 0
    for kind, _, _ in order:
        kept += 1 if kind == "F" else -1
        most = max(most, kept)
    return most / stages_per_rank
