"""Faults that 05_collectives must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault(
    "05_collectives",
    where="ranks",
    detected_by=("collectives.values", "collectives.types", "collectives.groups", "collectives.sizes"),
)
def sum_forgets_a_rank() -> None:
    """all_reduce adds up without one rank."""
    import paddle.distributed as dist

    def forgetful(real):
        def all_reduce(tensor, *rest, **named):
            if dist.get_rank() == 1:
                tensor.scale_(0.0)
            return real(tensor, *rest, **named)

        return all_reduce

    dist.all_reduce, dist.stream.all_reduce = forgetful(dist.all_reduce), forgetful(dist.stream.all_reduce)


@fault("05_collectives", device="sim", where="ranks", detected_by=("all-to-all.values",))
def all_to_all_swapped() -> None:
    """alltoall_single takes its output for its input."""
    import paddle.distributed as dist

    real = dist.alltoall_single

    def swapped(out, sent, *rest, **named):  # of the same shape, so that nothing raises
        return real(*((sent, out) if out.shape == sent.shape else (out, sent)), *rest, **named)

    dist.alltoall_single = swapped


@fault(
    "05_collectives",
    device="sim",
    sim_faults="flip collective kind=all_reduce rank=1 bit=20 from=1",
    detected_by=("collectives.values", "collectives.types"),
)
def bit_flips_in_a_sum() -> None:
    """A card inverts one bit of what all_reduce gives it."""


@fault("05_collectives", where="ranks", detected_by=("collectives.values",))
def broadcast_from_another_rank() -> None:
    """Broadcast sends what rank 0 has, whatever rank was named."""
    import paddle.distributed as dist

    real = dist.broadcast
    dist.broadcast = lambda tensor, src, **named: real(tensor, 0, **named)


@fault("05_collectives", where="ranks", detected_by=("collectives.values",))
def gathered_in_another_order() -> None:
    """all_gather returns the parts in reverse order."""
    import paddle.distributed as dist

    real = dist.all_gather

    def reversed_gather(parts, *given, **named):
        task = real(parts, *given, **named)
        parts.reverse()
        return task

    dist.all_gather = reversed_gather


@fault("05_collectives", where="ranks", detected_by=("collectives.groups",))
def sum_in_a_group_is_a_mean() -> None:
    """all_reduce in a group divides by the number of its ranks."""
    import paddle.distributed as dist

    real = dist.all_reduce

    def mean(tensor, *given, group=None, **named):
        task = real(tensor, *given, group=group, **named)
        if group is not None:
            tensor.scale_(1 / group.nranks)
        return task

    dist.all_reduce = mean


@fault("05_collectives", where="ranks", detected_by=("collectives.values",))
def maximum_is_a_sum() -> None:
    """all_reduce adds up where the maximum was asked for."""
    import paddle.distributed as dist

    real = dist.stream.all_reduce
    dist.stream.all_reduce = lambda tensor, op=None, **named: real(tensor, **named)


@fault(
    "05_collectives",
    device="sim",
    where="ranks",
    reason_contains="not found for empty tensors",
    detected_by=("all-to-all.values",),
)
def nothing_cannot_be_exchanged() -> None:
    """All-to-all of empty tensors raises."""
    import paddle.distributed as dist

    real = dist.alltoall_single

    def refusing(out, sent, *given, **named):
        if 0 in (out.size, sent.size):
            raise RuntimeError("the interface is not found for empty tensors")
        return real(out, sent, *given, **named)

    dist.alltoall_single = refusing


@fault(
    "05_collectives",
    device="sim",
    sim_faults="drop collective rank=1 n=2",
    reason_contains="rank 1",
    detected_by=("collectives.values",),
)
def rank_that_ends() -> None:
    """A rank ends in the middle of a collective."""


@fault(
    "05_collectives",
    device="sim",
    sim_faults="lose collective rank=1 n=2",
    reason_contains="is lost",
    detected_by=("collectives.values",),
)
def card_that_is_lost() -> None:
    """A card is lost in the middle of a collective."""


@fault(
    "05_collectives",
    device="sim",
    sim_faults="hang collective rank=1 n=2",
    reason_contains="rank 1",
    detected_by=("collectives.values",),
)
def stream_that_hangs() -> None:
    """A stream of one card hangs."""


@fault("05_collectives", device="sim", sim_faults="delay task rank=1 seconds=0.003", detected_by=("hang.slow",))
def slow_card() -> None:
    """Each task of one card takes 3 ms longer."""


@fault("05_collectives", device="sim", sim_faults="slow copy rank=1 factor=100", detected_by=("hang.slow",))
def slow_link() -> None:
    """The copies of one card take a hundred times as long."""


@fault("05_collectives", where="ranks", detected_by=("hang.slow",))
def slow_rank() -> None:
    """One rank needs five times as long for a product of matrices."""
    import paddle
    import paddle.distributed as dist

    real = paddle.Tensor.__matmul__

    def slow(self, other):
        if dist.get_rank() == 1:
            for _ in range(4):
                real(self, other)
        return real(self, other)

    paddle.Tensor.__matmul__ = slow


@fault("05_collectives", detected_by=("hang.root-cause",))
def victim_named_as_root_cause() -> None:
    """When one rank is lost, another one is named."""
    from xpulab import ranks

    run = ranks.run

    def unjust(function, n, *arguments, **options):
        try:
            return run(function, n, *arguments, **options)
        except ranks.RanksFailed as failed:
            failed.root_cause = (failed.root_cause + 1) % n
            raise

    ranks.run = unjust


@fault("05_collectives", detected_by=("hang.stack", "hang.reason"))
def stack_is_not_told() -> None:
    """Nobody says where a lost rank is, nor why another one failed."""
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


@fault("05_collectives", where="ranks", detected_by=("collectives.types",))
def sent_in_half_the_bits() -> None:
    """all_reduce sends float32 as bfloat16."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def narrow(tensor, *given, **named):
        if tensor.dtype == paddle.float32:
            tensor.set_value(tensor.astype("bfloat16").astype("float32"))
        return real(tensor, *given, **named)

    dist.all_reduce = narrow


@fault("05_collectives", where="ranks", detected_by=("collectives.types",))
def double_added_as_single() -> None:
    """all_reduce adds float64 and int64 in float32."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def narrow(tensor, *given, **named):
        if tensor.dtype in (paddle.float64, paddle.int64):
            tensor.set_value(tensor.astype("float32").astype(tensor.dtype))
        return real(tensor, *given, **named)

    dist.all_reduce = narrow


@fault("05_collectives", where="ranks", detected_by=("collectives.sizes",))
def chunks_in_another_order() -> None:
    """A large sum is put together in the wrong order."""
    import paddle
    import paddle.distributed as dist

    real = dist.all_reduce

    def mixed(tensor, *given, **named):
        task = real(tensor, *given, **named)
        if tensor.size >= 4096:
            tensor.set_value(paddle.roll(tensor, tensor.size // 2))
        return task

    dist.all_reduce = mixed


@fault("05_collectives", device="sim", where="ranks", detected_by=("collectives.barrier",))
def barrier_that_is_open() -> None:
    """Barrier returns at once."""
    import paddle.distributed as dist

    dist.barrier = lambda *given, **named: None


@fault("05_collectives", where="ranks", detected_by=("collectives.groups",))
def another_source_in_a_group() -> None:
    """Broadcast in a group sends what the next rank has."""
    import paddle.distributed as dist

    real = dist.broadcast

    def shifted(tensor, src, group=None, **named):
        if group is not None:
            src = group.ranks[(group.ranks.index(src) + 1) % group.nranks]
        return real(tensor, src, group=group, **named)

    dist.broadcast = shifted


@fault("05_collectives", where="ranks", detected_by=("collectives.groups",))
def group_in_another_order() -> None:
    """all_gather in a group returns the parts in reverse order."""
    import paddle.distributed as dist

    real = dist.all_gather

    def reversed_gather(parts, *given, group=None, **named):
        task = real(parts, *given, group=group, **named)
        if group is not None:
            parts.reverse()
        return task

    dist.all_gather = reversed_gather


@fault("05_collectives", where="ranks", detected_by=("collectives.values",))
def wait_that_does_not_wait() -> None:
    """An asynchronous sum has not arrived when wait returns."""
    from types import SimpleNamespace

    import paddle.distributed as dist

    real = dist.all_reduce

    def not_awaited(tensor, *given, sync_op=True, **named):
        if sync_op:
            return real(tensor, *given, **named)
        real(tensor.clone(), *given, **named)
        return SimpleNamespace(wait=lambda: True)

    dist.all_reduce = not_awaited
