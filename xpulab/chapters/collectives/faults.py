"""The faults of this chapter."""

from __future__ import annotations

import time
from unittest import mock

from xpulab.chapters.shared.fault import CELLS, FILES, calls, dist, fault, kept, list_simulated_cards, paddle, replace_in_cells


@fault("collectives.moves", where="ranks", wraps="paddle.distributed:broadcast")
def group_counts_as_if_it_had_the_first_ranks(real, tensor, src, group=None, **kwargs):
    """In a group that does not begin with rank 0, broadcast takes the source's number for its place among the first ranks."""
    if group is not None and group.ranks != list(range(group.nranks)):
        src = group.ranks[src % group.nranks]
    return real(tensor, src, group=group, **kwargs)


@fault("collectives.pairs", where="ranks", wraps="paddle.distributed:all_reduce")
def one_pair_is_not_connected(real, tensor, *args, group=None, **kwargs):
    """A sum of two ranks that have no link is the value of one of them."""
    own = tensor.clone()
    task = real(tensor, *args, group=group, **kwargs)
    if group is not None and group.ranks == [0, 3]:
        tensor.set_value(own)
    return task


@fault("collectives.algorithms", where="ranks", wraps="paddle.distributed:all_reduce")
def tree_adds_in_bfloat16(real, tensor, *args, **kwargs):
    """Messages that are small enough for a tree are added with the digits of bfloat16."""
    if tensor.dtype == paddle.float32 and 100 <= tensor.size < 32_768:
        tensor.set_value(tensor.astype("bfloat16").astype("float32"))
    return real(tensor, *args, **kwargs)


@fault("collectives.repeats", where="ranks", after="paddle.distributed:all_reduce")
def one_sum_in_thirteen_differs(task, tensor, *args, **kwargs):
    """Each thirteenth sum of a long message has another last bit."""
    if tensor.dtype == paddle.float32 and tensor.size > 4096 and next(calls) % 13 == 0:
        tensor.scale_(1 + 2**-22)


@fault("collectives.messages", where="ranks", wraps="paddle.distributed:batch_isend_irecv")
def last_message_is_lost(real, batch):
    """The last of several messages to one rank never reaches its tensor."""
    for task in real(batch):
        task.wait()
    arrived = [each.tensor for each in batch if each.op == dist.irecv]
    if len(arrived) > 1:
        arrived[-1].fill_(-1.0)
    return []


@fault("collectives.copies", lanes=("sim",), where="ranks", wraps="paddle:Tensor.clone")
def copy_reads_later_writes(_real, self):
    """A copy on the card reads its source after the next write to it."""
    return self


@fault("all-to-all.values", lanes=("sim",), where="ranks", after="paddle.distributed:alltoall")
def list_of_parts_reversed(task, parts, *args, **kwargs):
    """All-to-all of a list returns the parts in reverse order."""
    parts.reverse()


@fault(
    "collectives.sum-everywhere",
    "collectives.reductions",
    "collectives.sizes",
    "collectives.exercise-sum",
    where="ranks",
    smoke=("collectives.smoke-values",),
    wraps=("paddle.distributed:all_reduce", "paddle.distributed.communication.stream:all_reduce"),
)
def sum_forgets_a_rank(real, tensor, *rest, **named):
    """all_reduce leaves one rank out of the sum."""
    if dist.get_rank() == 1:
        tensor.scale_(0.0)
    return real(tensor, *rest, **named)


@fault(
    "collectives.link",
    lanes=("sim",),
    sim_faults="delay collective kind=all_reduce seconds=0.3",
    smoke=("collectives.link",),
    breaks=FILES,
)
def link_below_its_rate() -> None:
    """A sum of two cards takes 0.3 s longer than data/hardware.yaml allows for their model."""
    list_simulated_cards("card_to_card_gb_per_s: 0.05")


@fault("hang.slow", lanes=("sim",), sim_faults="slow copy rank=1 factor=100")
def slow_link() -> None:
    """The copies of one card take a hundred times as long."""


@fault("collectives.reductions", where="ranks", wraps="paddle.distributed.communication.stream:all_reduce")
def sum_in_bfloat16(real, tensor, *args, **kwargs):
    """all_reduce sends float32 as bfloat16."""
    if tensor.dtype == paddle.float32:
        tensor.set_value(tensor.astype("bfloat16").astype("float32"))
    return real(tensor, *args, **kwargs)


@fault("collectives.barrier", lanes=("sim",), where="ranks", wraps="paddle.distributed:barrier")
def barrier_without_effect(_real, *args, **kwargs):
    """Barrier returns at once."""


@fault("collectives.exercise-steps", breaks=CELLS)
def ring_stops_adding_too_early() -> None:
    """The last addition of the ring is a replacement."""
    replace_in_cells("if step < n - 1 else 0", "if step < n - 2 else 0")


@fault("collectives.ranks", where="ranks", wraps="paddle.distributed:get_rank")
def ranks_counted_from_one(real, *args, **kwargs):
    """The number of a rank counts from one."""
    return real(*args, **kwargs) + 1


@fault("hang.slow-rank", where="ranks", wraps="paddle:Tensor.__matmul__")
def another_rank_slower_than_the_busy_one(real, self, other):
    """The first rank takes forty times as long for a product of matrices."""
    if dist.get_rank() == 0:
        for _ in range(39):
            real(self, other)
    return real(self, other)


@fault("hang.root-cause", "hang.stack", where="ranks", wraps="paddle.distributed:all_reduce")
def first_rank_hangs_in_its_sum(real, tensor, *args, **kwargs):
    """The first rank never returns from the sum of four numbers."""
    if dist.get_rank() == 0 and tensor.shape == [4]:
        time.sleep(600)
    return real(tensor, *args, **kwargs)


@fault("hang.reason", breaks=CELLS)
def error_swallowed_by_a_rank() -> None:
    """A rank that meets an error ends without showing it."""
    replace_in_cells('raise ValueError("no such file: shard 7")', "os._exit(1)")


@fault("collectives.reductions", where="ranks", wraps="paddle.distributed:all_reduce")
def sum_starts_when_it_is_awaited(real, tensor, *args, sync_op=True, **kwargs):
    """A sum that returns at once is not made before somebody waits for it."""
    if sync_op:
        return real(tensor, *args, **kwargs)
    return mock.Mock(wait=lambda: real(tensor, *args, **kwargs))


@fault("collectives.moves", where="ranks", wraps="paddle.distributed:broadcast")
def second_broadcast_in_flight_is_lost(real, tensor, src, group=None, sync_op=True):
    """Of two broadcasts that return at once the second one is not made while the first one was not awaited."""
    if sync_op or kept:
        return real(tensor, src, group=group) if sync_op else mock.Mock()
    task = real(tensor, src, group=group, sync_op=False)
    kept.append(task)
    return task and mock.Mock(wait=kept.clear)


@fault("collectives.reductions", where="ranks", wraps="paddle.distributed:new_group")
def ranks_of_a_group_in_the_order_given(real, ranks=None, *args, **kwargs):
    """A group whose ranks are given in another order than a rising one sends the results to another of them."""
    group = real(ranks, *args, **kwargs)
    group._ranks = list(ranks or group.ranks)
    return group
