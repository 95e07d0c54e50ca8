"""What each rank of a mesh holds of a tensor under a list of placements, computed with numpy.

A mesh is given by its shape, (4,) or (2, 2): its ranks are counted row by row. A placement is "R" (Replicate), "S0" or "S1"
(Shard of that dimension) or "P" (Partial), one for each axis of the mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Kinds = Sequence[str]
Pair = tuple[Shape, tuple[str, ...], tuple[str, ...]]
"""A reshard: the shape of the mesh, the placements before, the placements after."""


def ranks_of(shape: Shape) -> np.ndarray:
    """The ranks of a mesh, in its shape."""
    return np.arange(np.prod(shape)).reshape(shape)


def block(x: np.ndarray, shape: Shape, kinds: Kinds, rank: int) -> np.ndarray:
    """What a rank of a mesh holds of x, with partial summands added up."""
    position = np.argwhere(ranks_of(shape) == rank)[0]
    for axis, kind in enumerate(kinds):
        if kind[0] == "S":
            dimension = int(kind[1])
            size = -(-x.shape[dimension] // shape[axis])  # rounded up: the last part may be smaller
            x = np.take(x, np.arange(x.shape[dimension])[position[axis] * size :][:size], dimension)
    return x


def blocks(x: np.ndarray, shape: Shape, kinds: Kinds) -> np.ndarray:
    """The blocks of all ranks, [ranks, ...]; they must be equally large."""
    return np.stack([block(x, shape, kinds, rank) for rank in range(int(np.prod(shape)))])


def summing_ranks(shape: Shape, kinds: Kinds, rank: int) -> np.ndarray:
    """The ranks whose summands add up to the block of this rank: those along its partial axes."""
    position = np.argwhere(ranks_of(shape) == rank)[0]
    along = tuple(slice(None) if kind == "P" else place for kind, place in zip(kinds, position, strict=True))
    return ranks_of(shape)[along].ravel()


def summand(x: np.ndarray, shape: Shape, kinds: Kinds, rank: int) -> np.ndarray:
    """What a rank holds: its block, or for a partial axis 1 + rank on all ranks but the first, which holds the difference."""
    together = summing_ranks(shape, kinds, rank)
    if rank != together[0]:
        return np.full_like(block(x, shape, kinds, rank), 1 + rank)
    return block(x, shape, kinds, rank) - sum(1 + other for other in together[1:])


def summed(held: Sequence[np.ndarray], shape: Shape, kinds: Kinds) -> np.ndarray:
    """The block of each rank, summands added up, [ranks, ...]; held: what each rank holds."""
    return np.stack([sum(held[other] for other in summing_ranks(shape, kinds, rank)) for rank in range(len(held))])


def format_pair(pair: Pair) -> str:
    """ "2x2 ranks, S0 R to R P"."""
    shape, source, target = pair
    return f"{'x'.join(map(str, shape))} ranks, {' '.join(source)} to {' '.join(target)}"


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> Mapping[str, Any]:
    """Cross entropy of float32 logits in double precision: losses, their gradient, and that of a softmax of each half alone.

    logits: [rows, an even number of columns]. labels: [rows].
    """
    exact = logits.astype("float64")
    one_hot = np.eye(exact.shape[1])[labels]
    halves = np.split(exact, 2, axis=1)
    alone = np.concatenate([_softmax(half) for half in halves], 1)
    largest = exact.max(1)
    losses = np.log(np.exp(exact - largest[:, None]).sum(1)) + largest - exact[range(len(labels)), labels]
    return {"losses": losses, "gradient": _softmax(exact) - one_hot, "of halves": alone - one_hot}


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
