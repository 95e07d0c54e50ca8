"""Messages between ranks: several in one batch from one rank to one other, each of which must arrive, and in the order in which
it was sent; and how large those are whose bandwidth is measured.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks
from xpulab.checks.ledger import ledger
from xpulab.records.record import CardFacts

LARGEST = 4**14
"""Elements of four bytes: 1 GiB."""

COPIES = 6
"""How many tensors of the message's size a measurement holds at its peak: values, sums, and what they are compared with."""

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
    """Elements of four bytes, each size four times that before.

    At level standard up to 1 GiB on a GPU or an XPU, as far as COPIES of it fit in the free memory that the vendor's tool
    shows of every card. On the CPU and on simulated cards, which share the host's memory, up to 64 MB; at lower levels 4 MB.
    """
    if level != "standard":
        return _up_to(4**10)
    if device not in ("gpu", "xpu"):
        return _up_to(4**12)
    facts = ledger.run_context.card_facts if ledger.run_context else ()
    return _up_to(max(4**12, min(LARGEST, free_bytes(facts) // (4 * COPIES))))


def free_bytes(facts: Sequence[CardFacts]) -> int:
    """The least free memory of these cards, in bytes; 0 where the tool does not show it."""
    known = [(each.memory_total_mib or 0) - (each.memory_used_mib or 0) for each in facts]
    return min(known, default=0) << 20


def _up_to(most: int) -> list[int]:
    return [4**power for power in range(2, 15) if 4**power <= most]


def counted_while_waiting(seconds: float) -> int:
    """On a rank: how often another thread counted while this one waited in all_reduce for rank 1, which came `seconds` late."""
    dist.init_parallel_env()
    tensor, moments, ended = paddle.ones([4]), [], threading.Event()
    dist.all_reduce(tensor)  # makes the communicator

    def count() -> None:
        while not ended.wait(0.005):
            moments.append(time.monotonic())

    thread = threading.Thread(target=count)
    thread.start()
    if dist.get_rank() == 1:
        time.sleep(seconds)
    begin = time.monotonic()
    dist.all_reduce(tensor)
    tensor.numpy()  # a card waits here
    end = time.monotonic()
    ended.set()
    thread.join()
    return sum(begin < moment < end for moment in moments)
