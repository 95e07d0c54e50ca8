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
)
