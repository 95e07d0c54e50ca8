"""Sums over ranks by every algorithm that the library offers: how accurate they are, and whether they repeat to the bit.

    for name, variables in algorithms(here.name).items():
        with variables_set(variables):
            errors = ranks.run(errors_on_this_rank, n, device=here.name)  # calls accuracy(here.name)

Reference implementation: the sum in float64 of what the ranks hold. The bound is that of n - 1 rounded additions in any order,
(n - 1) * u * sum of |x|, with u half the distance from 1 to the next number of the type.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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


@contextlib.contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Inside the block this process, and so every rank that it starts, has these environment variables."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


Errors = dict[str, tuple[float, float, float]]
"""By "way, type, size": the largest error in units of the bound, its control, and the mean error towards larger numbers."""


def accuracy(device: str) -> Errors:
    """On a rank, after init_parallel_env: the errors of each way of adding, for each type and size."""
    rank, found = dist.get_rank(), {}
    for dtype in types(device):
        for size in SIZES:
            every = [random_values(dtype, size, each) for each in range(dist.get_world_size())]
            for name, add in ways(device).items():
                ranks.step(f"{name}, {dtype}[{size}]")
                total = add(paddle.to_tensor(every[rank]).astype(dtype)).astype("float32").numpy()
                found[f"{name}, {dtype}[{size}]"] = errors(total, every, dtype)
    return found


def errors(total: np.ndarray, every: Sequence[np.ndarray], dtype: str) -> tuple[float, float, float]:
    """The largest error of a sum in units of the bound; that of a sum with four bits fewer; and the mean relative error.

    total: [size]. every: what each rank held, [size] each. The mean is in units of u * sum of |x|; it is near 0 when sums
    are rounded, and negative when digits are cut off.
    """
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


def types(device: str) -> tuple[Any, ...]:
    """The types whose sums are compared: gloo's float16 is a known issue."""
    return ("float32", "bfloat16") if device == "cpu" else tuple(UNIT)


def ways(device: str) -> dict[str, Callable[[paddle.Tensor], paddle.Tensor]]:
    """Functions that add up the tensors of all ranks; each is an algorithm that a library could use for all_reduce."""
    found: dict[str, Callable[[paddle.Tensor], paddle.Tensor]] = {
        "all_reduce": all_reduce,
        "reduce, broadcast": reduce_and_broadcast,
    }
    return found if device == "cpu" else {**found, "reduce_scatter, all_gather": scatter_and_gather}


def all_reduce(x: paddle.Tensor) -> paddle.Tensor:
    """What the library chooses."""
    dist.all_reduce(x)
    return x


def reduce_and_broadcast(x: paddle.Tensor) -> paddle.Tensor:
    """As a tree does: the last rank gets the sum and sends it to all."""
    last = dist.get_world_size() - 1
    dist.reduce(x, dst=last)
    dist.broadcast(x, src=last)
    return x


def scatter_and_gather(x: paddle.Tensor) -> paddle.Tensor:
    """As a ring does: each rank gets the sum of one part and sends it to all."""
    n = dist.get_world_size()
    padded = paddle.concat([x, paddle.zeros([-x.shape[0] % n], dtype=x.dtype)]) if x.shape[0] % n else x
    part, total = paddle.zeros([padded.shape[0] // n], dtype=x.dtype), paddle.zeros_like(padded)
    dist.stream.reduce_scatter(part, padded)
    dist.stream.all_gather(total, part)
    return total[: x.shape[0]]


def repeats(device: str, times: int) -> dict[str, list[int]]:
    """On a rank, after init_parallel_env: by "way, type, size" the checksums of the same sum, added this many times."""
    found = {}
    for dtype in types(device):
        for size in SIZES[1:]:
            mine = paddle.to_tensor(random_values(dtype, size, dist.get_rank())).astype(dtype)
            for name, add in ways(device).items():
                ranks.step(f"{name}, {dtype}[{size}]")
                sums = [zlib.crc32(add(mine.clone()).numpy().tobytes()) for _ in range(times)]
                found[f"{name}, {dtype}[{size}]"] = sums
    return found
