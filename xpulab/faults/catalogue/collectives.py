"""Faults that 07_collectives must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault(
    "07_collectives",
    where="ranks",
    detected_by=(
        "collectives.sum-everywhere",
        "collectives.values",
        "collectives.types",
        "collectives.groups",
        "collectives.sizes",
    ),
    smoke=("collectives.smoke-values",),
)
def sum_forgets_a_rank() -> None:
    """all_reduce leaves one rank out of the sum."""
    import paddle.distributed as dist

    def forgetful(real):
        def all_reduce(tensor, *rest, **kwargs):
            if dist.get_rank() == 1:
                tensor.scale_(0.0)
            return real(tensor, *rest, **kwargs)

        return all_reduce

    dist.all_reduce, dist.stream.all_reduce = forgetful(dist.all_reduce), forgetful(dist.stream.all_reduce)


@fault("07_collectives", device="sim", where="ranks", detected_by=("all-to-all.values",))
def all_to_all_arguments_swapped() -> None:
    """alltoall_single uses its output as its input."""
    import paddle.distributed as dist

    real = dist.alltoall_single

    def swapped(out, sent, *rest, **kwargs):  # of the same shape, so that nothing raises
        return real(*((sent, out) if out.shape == sent.shape else (out, sent)), *rest, **kwargs)

    dist.alltoall_single = swapped


@fault(
    "07_collectives",
    device="sim",
    sim_faults="flip collective kind=all_reduce rank=1 bit=20 from=1",
    detected_by=("collectives.values", "collectives.types"),
)
def bit_flips_in_a_sum() -> None:
    """A card inverts one bit of the result of all_reduce."""


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def broadcast_from_another_rank() -> None:
    """Broadcast to all ranks sends the values of rank 0, whatever the source rank is."""
    import paddle.distributed as dist

    real = dist.broadcast
    dist.broadcast = lambda tensor, src, group=None, **kwargs: real(tensor, src if group else 0, group=group, **kwargs)


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def gathered_in_reverse_order() -> None:
    """all_gather returns the parts in reverse order."""
    import paddle.distributed as dist

    real = dist.all_gather

    def reversed_gather(parts, *args, **kwargs):
        task = real(parts, *args, **kwargs)
        parts.reverse()
        return task

    dist.all_gather = reversed_gather


@fault("07_collectives", where="ranks", detected_by=("collectives.groups",))
def sum_in_a_group_is_a_mean() -> None:
    """all_reduce in a group divides by the number of its ranks."""
    import paddle.distributed as dist

    real = dist.all_reduce

    def mean(tensor, *args, group=None, **kwargs):
        task = real(tensor, *args, group=group, **kwargs)
        if group is not None:
            tensor.scale_(1 / group.nranks)
        return task

    dist.all_reduce = mean


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def maximum_is_a_sum() -> None:
    """all_reduce returns the sum instead of the maximum."""
    import paddle.distributed as dist

    real = dist.stream.all_reduce
    dist.stream.all_reduce = lambda tensor, op=None, **kwargs: real(tensor, **kwargs)


@fault(
    "07_collectives",
    device="sim",
    where="ranks",
    reason_contains="not found for empty tensors",
    detected_by=("all-to-all.values",),
)
def empty_parts_refused() -> None:
    """All-to-all of empty tensors raises."""
    import paddle.distributed as dist

    real = dist.alltoall_single

    def refusing(out, sent, *args, **kwargs):
        if 0 in (out.size, sent.size):
            raise RuntimeError("the interface is not found for empty tensors")
        return real(out, sent, *args, **kwargs)

    dist.alltoall_single = refusing


@fault(
    "07_collectives",
    device="sim",
    sim_faults="drop collective rank=1 n=2",
    reason_contains="rank 1",
    detected_by=("collectives.values",),
)
def rank_ends() -> None:
    """A rank ends in the middle of a collective."""


@fault(
    "07_collectives",
    device="sim",
    sim_faults="lose collective rank=1 n=2",
    reason_contains="is lost",
    detected_by=("collectives.values",),
)
def card_lost() -> None:
    """A card is lost in the middle of a collective."""


@fault(
    "07_collectives",
    device="sim",
    sim_faults="hang collective rank=1 n=2",
    reason_contains="rank 1",
    detected_by=("collectives.values",),
)
def stream_hangs() -> None:
    """A stream of one card hangs."""


@fault("07_collectives", device="sim", sim_faults="delay task rank=1 seconds=0.003", detected_by=("hang.slow",))
def slow_card() -> None:
    """Each task of one card takes 3 ms longer."""


@fault("07_collectives", device="sim", sim_faults="slow copy rank=1 factor=100", detected_by=("hang.slow",))
def slow_link() -> None:
    """The copies of one card take a hundred times as long."""


@fault("07_collectives", where="ranks", detected_by=("hang.slow",))
def slow_rank() -> None:
    """One rank takes five times as long for a product of matrices."""
    import paddle
    import paddle.distributed as dist

    real = paddle.Tensor.__matmul__

    def slow(self, other):
        if dist.get_rank() == 1:
            for _ in range(4):
                real(self, other)
        return real(self, other)

    paddle.Tensor.__matmul__ = slow


@fault("07_collectives", detected_by=("hang.root-cause",))
def affected_rank_named_as_root_cause() -> None:
    """When one rank fails, another one is named as root cause."""
    from xpulab import ranks

    run = ranks.run

    def naming_another(function, n, *arguments, **options):
        try:
            return run(function, n, *arguments, **options)
        except ranks.RanksFailed as failed:
            failed.root_cause = (failed.root_cause + 1) % n
            raise

    ranks.run = naming_another


@fault("07_collectives", detected_by=("hang.stack", "hang.reason"))
def stack_and_error_not_reported() -> None:
    """The report contains neither the stack of a rank that hangs nor the error of a rank that failed."""
    from dataclasses import replace

    from xpulab import ranks

    run = ranks.run

    def silent(function, n, *arguments, **options):
        try:
            return run(function, n, *arguments, **options)
        except ranks.RanksFailed as failed:
            failed.reports = tuple(replace(report, detail="", reason="it failed") for report in failed.reports)
            raise

    ranks.run = silent


@fault("07_collectives", where="ranks", detected_by=("collectives.types",))
def sum_in_bfloat16() -> None:
    """all_reduce sends float32 as bfloat16."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def narrow(tensor, *args, **kwargs):
        if tensor.dtype == paddle.float32:
            tensor.set_value(tensor.astype("bfloat16").astype("float32"))
        return real(tensor, *args, **kwargs)

    dist.all_reduce = narrow


@fault("07_collectives", where="ranks", detected_by=("collectives.types",))
def double_added_in_float32() -> None:
    """all_reduce adds float64 and int64 in float32."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def narrow(tensor, *args, **kwargs):
        if tensor.dtype in (paddle.float64, paddle.int64):
            tensor.set_value(tensor.astype("float32").astype(tensor.dtype))
        return real(tensor, *args, **kwargs)

    dist.all_reduce = narrow


@fault("07_collectives", where="ranks", detected_by=("collectives.sizes",))
def parts_of_a_sum_in_wrong_order() -> None:
    """The parts of a large sum are joined in the wrong order."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def mixed(tensor, *args, **kwargs):
        task = real(tensor, *args, **kwargs)
        if tensor.size >= 4096:
            tensor.set_value(paddle.roll(tensor, tensor.size // 2))
        return task

    dist.all_reduce = mixed


@fault("07_collectives", device="sim", where="ranks", detected_by=("collectives.barrier",))
def barrier_without_effect() -> None:
    """Barrier returns at once."""
    import paddle.distributed as dist

    dist.barrier = lambda *args, **kwargs: None


@fault("07_collectives", where="ranks", detected_by=("collectives.groups",))
def wrong_source_in_a_group() -> None:
    """Broadcast in a group sends the values of the rank after the source."""
    import paddle.distributed as dist

    real = dist.broadcast

    def shifted(tensor, src, group=None, **kwargs):
        if group is not None:
            src = group.ranks[(group.ranks.index(src) + 1) % group.nranks]
        return real(tensor, src, group=group, **kwargs)

    dist.broadcast = shifted


@fault("07_collectives", where="ranks", detected_by=("collectives.groups",))
def group_gathered_in_reverse_order() -> None:
    """all_gather in a group returns the parts in reverse order."""
    import paddle.distributed as dist

    real = dist.all_gather

    def reversed_gather(parts, *args, group=None, **kwargs):
        task = real(parts, *args, group=group, **kwargs)
        if group is not None:
            parts.reverse()
        return task

    dist.all_gather = reversed_gather


@fault("07_collectives", where="ranks", detected_by=("collectives.values",))
def wait_returns_too_early() -> None:
    """wait returns before the result of an asynchronous all_reduce has arrived."""
    from types import SimpleNamespace

    import paddle.distributed as dist

    real = dist.all_reduce

    def not_awaited(tensor, *args, sync_op=True, **kwargs):
        if sync_op:
            return real(tensor, *args, **kwargs)
        real(tensor.clone(), *args, **kwargs)
        return SimpleNamespace(wait=lambda: True)

    dist.all_reduce = not_awaited


@fault("07_collectives", detected_by=("collectives.ring-and-tree",))
def ring_stops_adding_too_early() -> None:
    """The last addition of the ring is a replacement."""
    from xpulab.faults.fault import replace_in_cells

    replace_in_cells("if step < n - 1 else 0", "if step < n - 2 else 0")


@fault("07_collectives", detected_by=("collectives.ranks", "hang.slow-rank"))
def results_of_ranks_in_reverse_order() -> None:
    """What the ranks return arrives in reverse order."""
    from xpulab import ranks

    run = ranks.run
    ranks.run = lambda *arguments, **options: run(*arguments, **options)[::-1]


@fault("07_collectives", detected_by=("all-to-all.one-rank",))
def workaround_for_one_rank_missing() -> None:
    """In a group of one rank the output of an all-to-all is left as it was."""
    from xpulab.faults.fault import replace_in_cells

    replace_in_cells("if group.nranks <= 1:", "if group.nranks <= 0:")
