"""What chapter 10 does with single tensors on each rank: cut what crashes, pad it, cut along several axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F

from xpulab import ranks
from xpulab.chapters.auto_parallel.reshard_cases import placement_of
from xpulab.reference.placement import Kinds, Shape, ranks_of


def placements_of(kinds: Kinds) -> list[Any]:
    """Paddle's placements for these kinds."""
    return [placement_of(kind) for kind in kinds]


def new_mesh(shape: Shape) -> Any:
    """A mesh with the axes x, y and z, or the first ones of them."""
    return dist.ProcessMesh(ranks_of(shape), dim_names=["x", "y", "z"][: len(shape)])


def whole(tensor: Any) -> np.ndarray:
    """A tensor gathered on every rank."""
    if not tensor.is_dist():
        return tensor.numpy()
    replicated = [dist.Replicate()] * len(tensor.placements)
    return dist.reshard(tensor, tensor.process_mesh, replicated)._local_value().numpy()


def counted_rows(count: int) -> np.ndarray:
    """This many rows of five numbers, all different."""
    return np.arange(1, 1 + 5 * count, dtype="float32").reshape(count, 5)


def shard_and_gather(cases: Sequence[tuple[Shape, Kinds, int, bool]]) -> list[np.ndarray]:
    """On a rank: for each case the rows after they were cut and all parts were gathered again.

    cases: shape of the mesh, placements, number of rows, whether rows of zeros are appended up to a multiple of the ranks.
    """
    dist.init_parallel_env()
    found = []
    for shape, kinds, count, padded in cases:
        ranks.step(f"{count} rows, {kinds}")
        missing = -count % dist.get_world_size() if padded else 0
        x = paddle.to_tensor(np.pad(counted_rows(count), ((0, missing), (0, 0))))
        mesh = new_mesh(shape)
        part = dist.shard_tensor(x, mesh, placements_of(kinds))
        back = dist.reshard(part, mesh, [dist.Replicate()] * len(shape))
        found.append(back._local_value().numpy()[:count])
    return found


PADDED = (((4,), ("S0",), 9, True), ((2, 2), ("S0", "S0"), 7, True))
CRASHING = (((4,), ("S0",), 9, False), ((2, 2), ("S0", "S0"), 7, False))
"""Cases of shard_and_gather that work only since rows are appended, and that end a rank."""


def gathered_or_zeros(case: tuple[Shape, Kinds, int, bool], device: str) -> np.ndarray:
    """The gathered rows on rank 0, or zeros when a rank crashed."""
    try:
        return ranks.run(shard_and_gather, 4, [case], device=device, time_limit=30)[0][0]
    except ranks.RanksFailed:
        return np.zeros_like(counted_rows(case[2]))


@dataclass(frozen=True)
class Placed:
    """Of a result on a rank: kinds, its placements; held, what the rank has of it and of the gradient of the input."""

    kinds: list[str]
    held: tuple[np.ndarray, np.ndarray]


def over_axes(shapes: Iterable[Shape], x: np.ndarray, weights: np.ndarray) -> dict[tuple[Shape, str], Placed]:
    """On a rank: (mesh, operator) to the result; rows are cut along all axes. The loss is the sum of results times weights."""
    dist.init_parallel_env()
    found = {}
    for shape in shapes:
        mesh = new_mesh(shape)
        for name, operator in OPERATORS.items():
            rows: Any = dist.shard_tensor(paddle.to_tensor(x), mesh, [dist.Shard(0)] * len(shape))
            rows.stop_gradient = False  # not before: its gradient would belong to the tensor that was cut
            result = operator(rows)
            kinds = ["S0" if each.is_shard(0) else "R" for each in result.placements or []]
            (result * dist.shard_tensor(paddle.to_tensor(weights), mesh, placements_of(kinds))).sum().backward()
            found[shape, name] = Placed(kinds, (result._local_value().numpy(), rows.grad._local_value().numpy()))
    return found


OPERATORS: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda rows: F.layer_norm(rows, [rows.shape[1]]),
    "cumsum": lambda rows: paddle.cumsum(rows, axis=1),
    "relu": lambda rows: F.relu(rows),
}


def results_in_numpy(x: np.ndarray, weights: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By the names of OPERATORS: the result, and the gradient of the sum of results times weights."""
    deviation = np.sqrt(x.var(1, keepdims=True) + 1e-5)
    normed = (x - x.mean(1, keepdims=True)) / deviation
    along = (weights * normed).mean(1, keepdims=True)
    return {
        "layer_norm": (normed, (weights - weights.mean(1, keepdims=True) - normed * along) / deviation),
        "cumsum": (x.cumsum(1), weights[:, ::-1].cumsum(1)[:, ::-1]),
        "relu": (np.maximum(x, 0), weights * (x > 0)),
    }


def _norm_gathered(x: np.ndarray, rows: int) -> np.ndarray:
    dist.init_parallel_env()
    filled = np.concatenate([x, np.zeros([rows - len(x), x.shape[1]], x.dtype)])
    cut = dist.shard_tensor(paddle.to_tensor(filled), new_mesh((2, 2)), placements_of(["S0", "S0"]))
    return whole(OPERATORS["layer_norm"](cut))[: len(x)]


def norm_of_rows(x: np.ndarray, rows: int, device: str) -> np.ndarray:
    """Layer norm of x on 2 x 2 ranks, filled up with zeros to so many rows and gathered; zeros when a rank raised an error."""
    try:
        return np.asarray(ranks.run(_norm_gathered, 4, x, rows, device=device, time_limit=30)[0])
    except ranks.RanksFailed:
        return np.zeros_like(x)
