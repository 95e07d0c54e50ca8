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
)
