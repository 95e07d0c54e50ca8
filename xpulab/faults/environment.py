"""Faults that 00_environment must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="products-in-half-the-bits",
        what="matrix products are computed in bfloat16 where float32 was asked for",
        notebook="00_environment",
        breaks="""
import paddle
product = paddle.Tensor.__matmul__
def coarse(tensor):
    return tensor.astype("bfloat16").astype(tensor.dtype)
paddle.Tensor.__matmul__ = lambda self, other: product(coarse(self), coarse(other))
""",
        seen_by=("numerics.matmul", "numerics.gradients"),
    ),
)
