"""Messages between ranks: several in one batch from one rank to one other, each of which must arrive, and in the order in which
it was sent; and how large those are whose bandwidth is measured.
"""

from __future__ import annotations

from typing import Any

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


def sends(ring: bool) -> dict[str, list[np.ndarray]]:
    """On a rank, after init_parallel_env: what arrived in each batch of batch_isend_irecv; empty where none was received.

    With ring each rank sends to the next one and receives from the one before in the same batch. Otherwise only the even
    ranks send, each to the next, because isend of gloo blocks until the message is received.
    """
    rank, n, found = dist.get_rank(), dist.get_world_size(), {}
    sending = ring or (rank % 2 == 0 and rank + 1 < n)
    receiving = ring or rank % 2 == 1
    for name, sizes in BATCHES.items():
        ranks.step(name)
        sent = [paddle.to_tensor(held(rank, number, size)) for number, size in enumerate(sizes)]
        arriving = [paddle.full([size], -1.0) for size in sizes]
        send: Any = dist.isend  # whose annotation P2POp does not accept
        batch = [dist.P2POp(send, each, (rank + 1) % n) for each in sent] if sending else []
        receive: Any = dist.irecv
        batch += [dist.P2POp(receive, each, (rank - 1) % n) for each in arriving] if receiving else []
        for task in dist.batch_isend_irecv(batch) if batch else ():
            task.wait()
        if receiving:
            found[name] = [each.numpy() for each in arriving]
    return found


def message_sizes(level: str, device: str) -> list[int]:
    """Elements of four bytes, each size four times that before, up to 4 MB; at level standard up to 64 MB, on cards 256 MB."""
    largest = 10 if level != "standard" else 13 if device in ("gpu", "xpu") else 12
    return [4**power for power in range(2, largest + 1)]
