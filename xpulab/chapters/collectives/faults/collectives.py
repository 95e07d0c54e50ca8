"""Faults of collectives, of the network between ranks, and of the report of ranks that fail or hang."""

from __future__ import annotations

import ctypes
import time
from dataclasses import replace
from types import SimpleNamespace

from xpulab.chapters.shared.fault import CELLS, dist, fault, paddle, replace_in_cells


@fault(
    where="ranks",
    detected_by=(
        "collectives.sum-everywhere",
        "collectives.reductions",
        "collectives.sizes",
        "collectives.exercise-sum",
    ),
    smoke=("collectives.smoke-values",),
    wraps=("paddle.distributed:all_reduce", "paddle.distributed.communication.stream:all_reduce"),
)
def sum_forgets_a_rank(real, tensor, *rest, **named):
    """all_reduce leaves one rank out of the sum."""
    if dist.get_rank() == 1:
        tensor.scale_(0.0)
    return real(tensor, *rest, **named)


@fault(device="sim", where="ranks", detected_by=("all-to-all.values",), wraps="paddle.distributed:alltoall_single")
def all_to_all_arguments_swapped(real, out, sent, *rest, **kwargs):
    """alltoall_single uses its output as its input."""
    return real(*((sent, out) if out.shape == sent.shape else (out, sent)), *rest, **kwargs)


@fault(
    device="sim",
    sim_faults="flip collective kind=all_reduce rank=1 bit=20 from=1",
    detected_by=("collectives.reductions",),
)
def bit_flips_in_a_sum() -> None:
    """A card inverts one bit of the result of all_reduce."""


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed:broadcast")
def broadcast_from_another_rank(real, tensor, src, group=None, **kwargs):
    """Broadcast to all ranks sends the values of rank 0, whatever the source rank is."""
    return real(tensor, src if group else 0, group=group, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed:all_gather")
def gathered_in_reverse_order(task, parts, *args, **kwargs):
    """all_gather returns the parts in reverse order."""
    parts.reverse()


@fault(where="ranks", detected_by=("collectives.reductions",), after="paddle.distributed:all_reduce")
def sum_in_a_group_is_a_mean(task, tensor, *args, group=None, **kwargs):
    """all_reduce in a group divides by the number of its ranks."""
    if group is not None:
        tensor.scale_(1 / group.nranks)


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def maximum_is_a_sum(real, tensor, op=None, **kwargs):
    """all_reduce returns the sum instead of the maximum."""
    return real(tensor, **kwargs)


@fault(
    device="sim",
    where="ranks",
    detected_by=("all-to-all.values",),
    wraps="paddle.distributed:alltoall_single",
)
def empty_parts_refused(real, out, sent, *args, **kwargs):
    """All-to-all of empty tensors raises."""
    if 0 in (out.size, sent.size):
        raise RuntimeError("the interface is not found for empty tensors")
    return real(out, sent, *args, **kwargs)


@fault(
    device="sim", sim_faults="drop collective rank=1 n=2", reason_contains="rank 1", detected_by=("collectives.sum-everywhere",)
)
def rank_ends() -> None:
    """A rank ends in the middle of a collective."""


@fault(
    device="sim",
    sim_faults="lose collective rank=1 n=2",
    reason_contains="is lost",
    detected_by=("collectives.sum-everywhere",),
)
def card_lost() -> None:
    """A card is lost in the middle of a collective."""


@fault(
    device="sim", sim_faults="hang collective rank=1 n=2", reason_contains="rank 1", detected_by=("collectives.sum-everywhere",)
)
def stream_hangs() -> None:
    """A stream of one card hangs."""


@fault(device="sim", sim_faults="delay task rank=1 seconds=0.003", detected_by=("hang.slow",))
def slow_card() -> None:
    """Each task of one card takes 3 ms longer."""


@fault(device="sim", sim_faults="slow copy rank=1 factor=100", detected_by=("hang.slow",))
def slow_link() -> None:
    """The copies of one card take a hundred times as long."""


@fault(where="ranks", detected_by=("hang.slow",), wraps="paddle:Tensor.__matmul__")
def slow_rank(real, self, other):
    """One rank takes five times as long for a product of matrices."""
    if dist.get_rank() == 1:
        for _ in range(4):
            real(self, other)
    return real(self, other)


@fault(detected_by=("hang.root-cause",), wraps="xpulab.ranks:run")
def affected_rank_named_as_root_cause(run, function, n, *arguments, **options):
    """When one rank fails, another one is named as root cause."""
    from xpulab import ranks

    try:
        return run(function, n, *arguments, **options)
    except ranks.RanksFailed as failed:
        failed.root_cause = (failed.root_cause + 1) % n
        raise


@fault(detected_by=("hang.stack", "hang.reason"), wraps="xpulab.ranks:run")
def stack_and_error_not_reported(run, function, n, *arguments, **options):
    """The report contains neither the stack of a rank that hangs nor the error of a rank that failed."""
    from xpulab import ranks

    try:
        return run(function, n, *arguments, **options)
    except ranks.RanksFailed as failed:
        failed.reports = tuple(replace(report, detail="", reason="it failed") for report in failed.reports)
        raise


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def sum_in_bfloat16(real, tensor, *args, **kwargs):
    """all_reduce sends float32 as bfloat16."""
    if tensor.dtype == paddle.float32:
        tensor.set_value(tensor.astype("bfloat16").astype("float32"))
    return real(tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed.communication.stream:all_reduce")
def double_added_in_float32(real, tensor, *args, **kwargs):
    """all_reduce adds float64 and int64 in float32."""
    if tensor.dtype in (paddle.float64, paddle.int64):
        tensor.set_value(tensor.astype("float32").astype(tensor.dtype))
    return real(tensor, *args, **kwargs)


@fault(where="ranks", detected_by=("collectives.sizes",), after="paddle.distributed:all_reduce")
def parts_of_a_sum_in_wrong_order(task, tensor, *args, **kwargs):
    """The parts of a large sum are joined in the wrong order."""
    if tensor.size >= 4096:
        tensor.set_value(paddle.roll(tensor, tensor.size // 2))


@fault(device="sim", where="ranks", detected_by=("collectives.barrier",), wraps="paddle.distributed:barrier")
def barrier_without_effect(_real, *args, **kwargs):
    """Barrier returns at once."""


@fault(where="ranks", detected_by=("collectives.gil",), also_on=("sim",), wraps="paddle.distributed:all_reduce")
def all_reduce_keeps_the_lock(real, tensor, *given, **named):
    """A rank that waits in all_reduce keeps Python's lock, so that no other thread of it runs."""
    if dist.get_rank() == 0:  # the other ranks arrive meanwhile
        longer_than_they_are_late = 600_000  # microseconds
        ctypes.PyDLL(None).usleep(longer_than_they_are_late)  # a call by PyDLL keeps the lock
    return real(tensor, *given, **named)


@fault(where="ranks", detected_by=("collectives.moves",), wraps="paddle.distributed:broadcast")
def wrong_source_in_a_group(real, tensor, src, group=None, **kwargs):
    """Broadcast in a group sends the values of the rank after the source."""
    if group is not None:
        src = group.ranks[(group.ranks.index(src) + 1) % group.nranks]
    return real(tensor, src, group=group, **kwargs)


@fault(where="ranks", detected_by=("collectives.moves",), after="paddle.distributed:all_gather")
def group_gathered_in_reverse_order(task, parts, *args, group=None, **kwargs):
    """all_gather in a group returns the parts in reverse order."""
    if group is not None:
        parts.reverse()


@fault(where="ranks", detected_by=("collectives.reductions",), wraps="paddle.distributed:all_reduce")
def wait_returns_too_early(real, tensor, *args, sync_op=True, **kwargs):
    """wait returns before the result of an asynchronous all_reduce has arrived."""
    if sync_op:
        return real(tensor, *args, **kwargs)
    real(tensor.clone(), *args, **kwargs)
    return SimpleNamespace(wait=lambda: True)


@fault(detected_by=("collectives.ring-and-tree", "collectives.exercise-steps"), breaks=CELLS)
def ring_stops_adding_too_early() -> None:
    """The last addition of the ring is a replacement."""
    replace_in_cells("if step < n - 1 else 0", "if step < n - 2 else 0")


@fault(detected_by=("collectives.ranks", "hang.slow-rank"), wraps="xpulab.ranks:run")
def results_of_ranks_in_reverse_order(run, *arguments, **options):
    """What the ranks return arrives in reverse order."""
    return run(*arguments, **options)[::-1]


@fault(detected_by=("all-to-all.one-rank",), breaks=CELLS)
def workaround_for_one_rank_missing() -> None:
    """In a group of one rank the output of an all-to-all is left as it was."""
    replace_in_cells("if group.nranks <= 1:", "if group.nranks <= 0:")


@fault(where="ranks", detected_by=("collectives.ranks",), wraps="paddle.distributed:get_rank")
def ranks_counted_from_one(real, *args, **kwargs):
    """The number of a rank counts from one."""
    return real(*args, **kwargs) + 1


@fault(where="ranks", detected_by=("hang.slow-rank",), wraps="paddle:Tensor.__matmul__")
def another_rank_slower_than_the_busy_one(real, self, other):
    """The first rank takes forty times as long for a product of matrices."""
    if dist.get_rank() == 0:
        for _ in range(39):
            real(self, other)
    return real(self, other)


@fault(where="ranks", detected_by=("hang.root-cause", "hang.stack"), wraps="paddle.distributed:all_reduce")
def first_rank_hangs_in_its_sum(real, tensor, *args, **kwargs):
    """The first rank never returns from the sum of four numbers."""
    if dist.get_rank() == 0 and tensor.shape == [4]:
        time.sleep(600)
    return real(tensor, *args, **kwargs)


@fault(detected_by=("hang.reason",), breaks=CELLS)
def error_swallowed_by_a_rank() -> None:
    """A rank that meets an error ends without showing it."""
    replace_in_cells('raise ValueError("no such file: shard 7")', "os._exit(1)")
