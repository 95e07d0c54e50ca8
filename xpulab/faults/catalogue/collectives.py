"""Faults that 05_collectives must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault, in_every_rank

FAULTS = (
    Fault(
        name="sum-forgets-a-rank",
        what="all_reduce adds up without one rank",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            def forgetful(real):
                def all_reduce(tensor, *rest, **named):
                    if dist.get_rank() == 1:
                        tensor.scale_(0.0)
                    return real(tensor, *rest, **named)
                return all_reduce
            dist.all_reduce, dist.stream.all_reduce = forgetful(dist.all_reduce), forgetful(dist.stream.all_reduce)
        """),
        seen_by=("collectives.values", "collectives.types", "collectives.groups", "collectives.sizes"),
    ),
    Fault(
        name="all-to-all-swapped",
        what="alltoall_single takes its output for its input",
        notebook="05_collectives",
        device="sim",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.alltoall_single
            def swapped(out, sent, *rest, **named):  # of the same shape, so that nothing raises
                return real(*((sent, out) if out.shape == sent.shape else (out, sent)), *rest, **named)
            dist.alltoall_single = swapped
        """),
        seen_by=("all-to-all.values",),
    ),
    Fault(
        name="bit-flips-in-a-sum",
        what="a card inverts one bit of what all_reduce gives it",
        notebook="05_collectives",
        device="sim",
        sim_faults="flip collective kind=all_reduce rank=1 bit=20 from=1",
        seen_by=("collectives.values", "collectives.types"),
    ),
    Fault(
        name="broadcast-from-another-rank",
        what="broadcast sends what rank 0 has, whatever rank was named",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.broadcast
            dist.broadcast = lambda tensor, src, **named: real(tensor, 0, **named)
        """),
        seen_by=("collectives.values",),
    ),
    Fault(
        name="gathered-in-another-order",
        what="all_gather returns the parts in reverse order",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.all_gather
            def reversed_gather(parts, *given, **named):
                task = real(parts, *given, **named)
                parts.reverse()
                return task
            dist.all_gather = reversed_gather
        """),
        seen_by=("collectives.values",),
    ),
    Fault(
        name="sum-in-a-group-is-a-mean",
        what="all_reduce in a group divides by the number of its ranks",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.all_reduce
            def mean(tensor, *given, group=None, **named):
                task = real(tensor, *given, group=group, **named)
                if group is not None:
                    tensor.scale_(1 / group.nranks)
                return task
            dist.all_reduce = mean
        """),
        seen_by=("collectives.groups",),
    ),
    Fault(
        name="maximum-is-a-sum",
        what="all_reduce adds up where the maximum was asked for",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.stream.all_reduce
            dist.stream.all_reduce = lambda tensor, op=None, **named: real(tensor, **named)
        """),
        seen_by=("collectives.values",),
    ),
    Fault(
        name="nothing-cannot-be-exchanged",
        what="all-to-all of empty tensors raises",
        notebook="05_collectives",
        device="sim",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.alltoall_single
            def refusing(out, sent, *given, **named):
                if 0 in (out.size, sent.size):
                    raise RuntimeError("the interface is not found for empty tensors")
                return real(out, sent, *given, **named)
            dist.alltoall_single = refusing
        """),
        seen_by=("all-to-all.values",),
        says="not found for empty tensors",
    ),
    Fault(
        name="rank-that-ends",
        what="a rank ends in the middle of a collective",
        notebook="05_collectives",
        device="sim",
        sim_faults="drop collective rank=1 n=2",
        seen_by=("collectives.values",),
        says="rank 1",
    ),
    Fault(
        name="card-that-is-lost",
        what="a card is lost in the middle of a collective",
        notebook="05_collectives",
        device="sim",
        sim_faults="lose collective rank=1 n=2",
        seen_by=("collectives.values",),
        says="is lost",
    ),
    Fault(
        name="stream-that-hangs",
        what="a stream of one card hangs",
        notebook="05_collectives",
        device="sim",
        sim_faults="hang collective rank=1 n=2",
        seen_by=("collectives.values",),
        says="rank 1",
    ),
    Fault(
        name="slow-card",
        what="each task of one card takes 3 ms longer",
        notebook="05_collectives",
        device="sim",
        sim_faults="delay task rank=1 seconds=0.003",
        seen_by=("hang.slow",),
    ),
    Fault(
        name="slow-link",
        what="the copies of one card take a hundred times as long",
        notebook="05_collectives",
        device="sim",
        sim_faults="slow copy rank=1 factor=100",
        seen_by=("hang.slow",),
    ),
    Fault(
        name="slow-rank",
        what="one rank needs five times as long for a product of matrices",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = paddle.Tensor.__matmul__
            def slow(self, other):
                if dist.get_rank() == 1:
                    for _ in range(4):
                        real(self, other)
                return real(self, other)
            paddle.Tensor.__matmul__ = slow
        """),
        seen_by=("hang.slow",),
    ),
    Fault(
        name="victim-named-as-root-cause",
        what="when one rank is lost, another one is named",
        notebook="05_collectives",
        breaks="""
from xpulab import ranks
run = ranks.run
def unjust(function, n, *arguments, **options):
    try:
        return run(function, n, *arguments, **options)
    except ranks.RanksFailed as failed:
        failed.root_cause = (failed.root_cause + 1) % n
        raise
ranks.run = unjust
""",
        seen_by=("hang.root-cause",),
    ),
    Fault(
        name="stack-is-not-told",
        what="nobody says where a lost rank is, nor why another one failed",
        notebook="05_collectives",
        breaks="""
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
""",
        seen_by=("hang.stack", "hang.reason"),
    ),
    Fault(
        name="sent-in-half-the-bits",
        what="all_reduce sends float32 as bfloat16",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.all_reduce
            def narrow(tensor, *given, **named):
                if tensor.dtype == paddle.float32:
                    tensor.set_value(tensor.astype("bfloat16").astype("float32"))
                return real(tensor, *given, **named)
            dist.all_reduce = narrow
        """),
        seen_by=("collectives.types",),
    ),
    Fault(
        name="double-added-as-single",
        what="all_reduce adds float64 and int64 in float32",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.all_reduce
            def narrow(tensor, *given, **named):
                if tensor.dtype in (paddle.float64, paddle.int64):
                    tensor.set_value(tensor.astype("float32").astype(tensor.dtype))
                return real(tensor, *given, **named)
            dist.all_reduce = narrow
        """),
        seen_by=("collectives.types",),
    ),
    Fault(
        name="chunks-in-another-order",
        what="a large sum is put together in the wrong order",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.all_reduce
            def mixed(tensor, *given, **named):
                task = real(tensor, *given, **named)
                if tensor.size >= 4096:
                    tensor.set_value(paddle.roll(tensor, tensor.size // 2))
                return task
            dist.all_reduce = mixed
        """),
        seen_by=("collectives.sizes",),
    ),
    Fault(
        name="barrier-that-is-open",
        what="barrier returns at once",
        notebook="05_collectives",
        device="sim",
        breaks=in_every_rank("import paddle.distributed as dist; dist.barrier = lambda *given, **named: None"),
        seen_by=("collectives.barrier",),
    ),
    Fault(
        name="another-source-in-a-group",
        what="broadcast in a group sends what the next rank has",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.broadcast
            def shifted(tensor, src, group=None, **named):
                if group is not None:
                    src = group.ranks[(group.ranks.index(src) + 1) % group.nranks]
                return real(tensor, src, group=group, **named)
            dist.broadcast = shifted
        """),
        seen_by=("collectives.groups",),
    ),
    Fault(
        name="group-in-another-order",
        what="all_gather in a group returns the parts in reverse order",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.all_gather
            def reversed_gather(parts, *given, group=None, **named):
                task = real(parts, *given, group=group, **named)
                if group is not None:
                    parts.reverse()
                return task
            dist.all_gather = reversed_gather
        """),
        seen_by=("collectives.groups",),
    ),
    Fault(
        name="wait-that-does-not-wait",
        what="an asynchronous sum has not arrived when wait returns",
        notebook="05_collectives",
        breaks=in_every_rank("""
            import paddle.distributed as dist
            from types import SimpleNamespace
            real = dist.all_reduce
            def not_awaited(tensor, *given, sync_op=True, **named):
                if sync_op:
                    return real(tensor, *given, **named)
                real(tensor.clone(), *given, **named)
                return SimpleNamespace(wait=lambda: True)
            dist.all_reduce = not_awaited
        """),
        seen_by=("collectives.values",),
    ),
)
