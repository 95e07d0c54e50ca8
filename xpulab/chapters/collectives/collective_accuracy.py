"""Sums over ranks by every algorithm that the library offers: how accurate they are, and whether they repeat to the bit.

    for name, variables in {"default": {}, **algorithms(here.name)}.items():
        with mock.patch.dict(os.environ, variables):
            found = ranks.run(sums_on_this_rank, n, device=here.name)  # calls repeated_sums(here.name, times)

Reference implementation: the sum in float64 of what the ranks hold. The bound is that of n - 1 rounded additions in any order,
(n - 1) * u * sum of |x|, with u half the distance from 1 to the next number of the type.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab import ranks
from xpulab.messages import N_

UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""Types, with half the distance from 1 to the next number."""

SIZES = (200, 5000, 70_001)
"""Elements: libraries choose trees or rings, and the way in which they divide a message, by its size."""

NO_CHOICE = {"cpu": N_("gloo offers no choice of algorithm"), "sim": N_("simulated cards add in one way only")}


@dataclass(frozen=True)
class Sums:
    """Of one sum that was computed several times.

    largest: the largest error in units of the bound. coarse: that of a sum with four bits fewer, the control.
    bias: the mean error towards larger numbers, in units of u * sum of |x|: near 0 when sums are rounded, negative when digits
    are cut off. checksums: of the bits, each time.
    """

    largest: float
    coarse: float
    bias: float
    checksums: list[int]


def algorithms(device: str) -> dict[str, dict[str, str]]:
    """By name: the environment variables with which a rank must be started. Empty where there is no choice.

    Sources: for a GPU NCCL's documentation of its environment variables; for an XPU the variables that ERNIE's launch
    scripts set, whose meaning is documented by their names only. Not yet run on either.
    """
    if device == "gpu":
        choices = {"NCCL_ALGO": ("Ring", "Tree"), "NCCL_PROTO": ("LL", "LL128", "Simple")}
        return {f"{name}={value}": {name: value} for name, values in choices.items() for value in values}
    if device == "xpu":
        tree = {"BKCL_RDMA_FORCE_TREE": "1", "BKCL_TREE_THRESHOLD": "0"}
        single = {f"{name}=1": {name: "1"} for name in ("BKCL_TREE_THRESHOLD", "BKCL_RING_OPT", "BKCL_USE_AR")}
        return {"BKCL_RDMA_FORCE_TREE=1": tree, **single}
    return {}


def repeated_sums(device: str, times: int) -> dict[str, Sums]:
    """On a rank, after init_parallel_env: by "type[size]" the same all_reduce, so many times."""
    rank, found = dist.get_rank(), {}
    for dtype in ("float32", "bfloat16") if device == "cpu" else UNIT:  # gloo's float16 is a known issue
        for size in SIZES:
            ranks.step(f"{dtype}[{size}]")
            every = [random_values(dtype, size, each) for each in range(dist.get_world_size())]
            totals = [paddle.to_tensor(every[rank]).astype(dtype) for _ in range(times)]
            for total in totals:
                dist.all_reduce(total)
            checksums = [zlib.crc32(total.numpy().tobytes()) for total in totals]
            found[f"{dtype}[{size}]"] = Sums(*errors(totals[0].astype("float32").numpy(), every, dtype), checksums)
    return found


def errors(total: np.ndarray, every: Sequence[np.ndarray], dtype: str) -> tuple[float, float, float]:
    """The first three fields of Sums. total: a sum, [size]. every: what each rank held, [size] each."""
    exact = np.sum(np.stack(every), axis=0, dtype="float64")
    scale = UNIT[dtype] * np.abs(np.stack(every)).sum(axis=0, dtype="float64")
    steps = 32 * UNIT[dtype] * 2.0 ** np.floor(np.log2(np.maximum(np.abs(exact), 1e-30)))
    coarse = np.round(exact / steps) * steps
    largest, control = (float((np.abs(each - exact) / scale).max() / (len(every) - 1)) for each in (total, coarse))
    return largest, control, float((np.sign(exact) * (total - exact) / scale).mean())


def random_values(dtype: str, size: int, rank: int) -> np.ndarray:
    """What a rank holds: numbers of this type around 0, as float32 [size]."""
    values = np.random.default_rng([rank, size]).standard_normal(size).astype("float32")
    if dtype == "bfloat16":  # the upper half of a float32
        return (values.view("uint32") & 0xFFFF0000).view("float32")
    return values.astype(dtype).astype("float32")
