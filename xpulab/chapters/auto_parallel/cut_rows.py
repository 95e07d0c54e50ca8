"""Operators on rows that are cut along both axes of a mesh: placements, values and gradients, beside numpy.

relu keeps both cuts. cumsum cannot work with them: Paddle keeps the cut along the larger axis, of equal ones along the first,
and replicates along the other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
import paddle.nn.functional as F

from xpulab.chapters.auto_parallel.resharding import placement_of
from xpulab.reference.placement import Shape, ranks_of

KEPT: dict[Shape, list[str]] = {(2, 3): ["R", "S0"], (3, 2): ["S0", "R"], (2, 2): ["S0", "R"]}
"""By the shape of the mesh the placements that the result of cumsum has."""

OPERATORS: dict[str, Callable[[Any], Any]] = {
    "cumsum": lambda rows: paddle.cumsum(rows, axis=1),
    "relu": lambda rows: F.relu(rows),
}

Result = tuple[list[str], np.ndarray, np.ndarray]
"""The placements of a result; what a rank has of it, and of the gradient of the input."""


def results(shapes: Sequence[Shape], x: np.ndarray, weights: np.ndarray) -> dict[tuple[Shape, str], Result]:
    """On a rank: the result by mesh and operator. The loss is the sum of results times weights. x, weights: [rows, columns]."""
    dist.init_parallel_env()
    found = {}
    for shape, (name, operator) in product(shapes, OPERATORS.items()):
        mesh = dist.ProcessMesh(ranks_of(shape), dim_names=["x", "y"])
        rows: Any = dist.shard_tensor(paddle.to_tensor(x), mesh, [dist.Shard(0), dist.Shard(0)])
        rows.stop_gradient = False  # not before: its gradient would belong to the tensor that was cut
        result = operator(rows)
        kinds = ["S0" if each.is_shard(0) else "R" for each in result.placements or []]
        factors = dist.shard_tensor(paddle.to_tensor(weights), mesh, [placement_of(kind) for kind in kinds])
        (result * factors).sum().backward()
        found[shape, name] = kinds, result._local_value().numpy(), rows.grad._local_value().numpy()
    return found


def in_numpy(x: np.ndarray, weights: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By operator the whole result, and the whole gradient of the sum of results times weights."""
    return {
        "cumsum": (x.cumsum(1), weights[:, ::-1].cumsum(1)[:, ::-1]),
        "relu": (np.maximum(x, 0), weights * (x > 0)),
    }
