"""Several messages from one rank to one other rank in one batch: each must arrive, and in the order in which it was sent."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks

BATCHES: dict[str, tuple[int, ...]] = {
    "two of the same size": (5, 5),
    "a long one, then a short one": (70_001, 3),
    "a short one, then a long one": (3, 70_001),
    "four": (1025, 1025, 1025, 1025),
}
"""By name: elements of each message of a batch."""


def held(sender: int, number: int, size: int) -> np.ndarray:
    """The values of a message, float32 [size]: others for each sender and for each message of its batch."""
    return (np.arange(size) % 1009 + 10_000 * sender + 2_000 * number).astype("float32")


def sends(round_trip: bool) -> dict[str, list[np.ndarray]]:
    """On a rank: what arrived in each batch, of batch_isend_irecv.

    Ranks 0 and 1, 2 and 3 and so on are peers; one that has none sends nothing. With round_trip both send in the same
    batch; otherwise only the even ranks send, because isend of gloo blocks until the message is received.
    """
    dist.init_parallel_env()
    rank, found = dist.get_rank(), {}
    peer = rank ^ 1
    if peer >= dist.get_world_size():
        return {}
    for name, sizes in BATCHES.items():
        ranks.step(name)
        sent = [paddle.to_tensor(held(rank, number, size)) for number, size in enumerate(sizes)]
        arriving = [paddle.full([size], -1.0) for size in sizes]
        batch = [dist.P2POp(dist.isend, each, peer) for each in sent] if round_trip or rank % 2 == 0 else []
        if round_trip or rank % 2:
            batch += [dist.P2POp(dist.irecv, each, peer) for each in arriving]
            found[name] = arriving
        for task in dist.batch_isend_irecv(batch):
            task.wait()
    return {name: [each.numpy() for each in arrived] for name, arrived in found.items()}
