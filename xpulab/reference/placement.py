"""What each rank of a mesh holds of a tensor under a list of placements, computed with numpy.

A mesh is an array of ranks, one axis of the array for each axis of the mesh. A placement is "R" (Replicate), "S0", "S1" or "S2"
(Shard of that dimension) or "P" (Partial: the tensor is the sum of what the ranks hold).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xpulab.reference.operators import log_softmax, softmax

Shape = tuple[int, ...]
Kinds = Sequence[str]


def ranks_of(shape: Shape) -> np.ndarray:
    """The ranks of a mesh of this shape, counted row by row."""
    return np.arange(np.prod(shape)).reshape(shape)


def block(x: np.ndarray, mesh: np.ndarray, kinds: Kinds, rank: int) -> np.ndarray:
    """What a rank of a mesh holds of x, with summands joined. The last parts may be smaller than the others, or empty."""
    position = np.argwhere(mesh == rank)[0]
    for axis, kind in enumerate(kinds):
        if kind[0] == "S":
            dimension = int(kind[1])
            size = -(-x.shape[dimension] // mesh.shape[axis])  # rounded up: the last part may be smaller
            x = np.take(x, np.arange(x.shape[dimension])[position[axis] * size :][:size], dimension)
    return x


def blocks(x: np.ndarray, shape: Shape, kinds: Kinds) -> np.ndarray:
    """What each rank of a mesh of this shape holds of x, [ranks, ...]; all blocks have one shape."""
    return np.stack([block(x, ranks_of(shape), kinds, rank) for rank in range(int(np.prod(shape)))])


def joining_ranks(mesh: np.ndarray, kinds: Kinds, rank: int) -> np.ndarray:
    """The ranks whose summands become the block of this rank: those along its partial axes."""
    position = np.argwhere(mesh == rank)[0]
    along = tuple(slice(None) if kind[0] == "P" else place for kind, place in zip(kinds, position, strict=True))
    return np.asarray(mesh[along]).ravel()


def joined(held: Sequence[np.ndarray], mesh: np.ndarray, kinds: Kinds, rank: int) -> np.ndarray:
    """The block of a rank, from what each rank holds."""
    return np.sum([held[other] for other in joining_ranks(mesh, kinds, rank)], axis=0)


def summands(mesh: np.ndarray, kinds: Kinds) -> list[tuple[int, ...]]:
    """By rank which summand it holds: its places along the partial axes."""
    places = [np.argwhere(mesh == rank)[0] for rank in range(mesh.size)]
    return [tuple(int(place) for kind, place in zip(kinds, each, strict=True) if kind[0] == "P") for each in places]


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> Mapping[str, Any]:
    """Cross entropy of float32 logits in double precision: losses, their gradient, and that of a softmax of each half alone.

    logits: [rows, an even number of columns]. labels: [rows].
    """
    exact = logits.astype("float64")
    one_hot = np.eye(exact.shape[1])[labels]
    alone = np.concatenate([softmax(half) for half in np.split(exact, 2, axis=1)], 1)
    losses = -log_softmax(exact)[range(len(labels)), labels]
    return {"losses": losses, "gradient": softmax(exact) - one_hot, "of halves": alone - one_hot}
