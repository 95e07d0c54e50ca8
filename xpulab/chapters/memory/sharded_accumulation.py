"""Gradient accumulation with the hand-written sharded optimizers of fleet and paddle.distributed.sharding, on two ranks.

Chapter 10 does the same with the optimizers of auto-parallel. Not run on a GPU or XPU yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist

from xpulab.chapters.memory import fused_buffers
from xpulab.messages import N_

STEPS, ROWS, RATE = 3, 8, 0.1

EPSILON = 1e-2
"""Of AdamW. The default makes the rounding error of a gradient near zero as large as a step, and hides a wrong factor."""

WIDTHS = (32, 40, 24)
"""Of the input, the hidden and the output; so large that what buffers are filled up with is little."""

LARGEST_WHOLE = 256
"""Numbers of a weight that stage 3 leaves whole on each rank; Paddle's default is more than this network has."""


@dataclass(frozen=True)
class Trained:
    """weights: after the last step. state_size: how many numbers of the optimizer's state this rank holds."""

    weights: list[np.ndarray]
    state_size: int


def _wrapped_by_fleet(network: Any, optimizer: Any, parts: int, **sharding: Any) -> tuple[Any, Any]:
    """sharding: of hybrid_configs["sharding_configs"]."""
    from paddle.distributed import fleet

    strategy: Any = fleet.DistributedStrategy()
    fused_buffers.let_buffers_be_here()
    degrees = {"dp_degree": 1, "mp_degree": 1, "pp_degree": 1, "sharding_degree": dist.ParallelEnv().world_size}
    strategy.hybrid_configs = degrees
    for name, value in sharding.items():
        setattr(strategy.hybrid_configs["sharding_configs"], name, value)
    strategy.hybrid_configs["sharding_configs"].accumulate_steps = parts
    fleet.init(is_collective=True, strategy=strategy)
    return fleet.distributed_model(network), fleet.distributed_optimizer(optimizer)


def _wrapped_in_group(network: Any, optimizer: Any, parts: int, stage: Any) -> tuple[Any, Any]:
    from paddle.distributed.sharding import group_sharded_parallel

    dist.init_parallel_env()
    return group_sharded_parallel(network, optimizer, stage, segment_size=LARGEST_WHOLE)[:2]


WAYS: dict[str, Callable[[Any, Any, int], tuple[Any, Any]]] = {
    "fleet, stage 1": _wrapped_by_fleet,
    "fleet, stage 1, parameters cut": partial(_wrapped_by_fleet, split_param=True),
    "fleet, stage 1, parameters cut, overlap": partial(_wrapped_by_fleet, split_param=True, comm_overlap=True),
    "group_sharded_parallel, os_g": partial(_wrapped_in_group, stage="os_g"),
    "group_sharded_parallel, p_g_os": partial(_wrapped_in_group, stage="p_g_os"),
}
"""By name what makes a network and its optimizer sharded, for steps of some parts."""


def why_not(way: str, device: str, cards: int) -> str:
    """Why this way cannot be tried on the device, or an empty text."""
    if device in ("cpu", "sim") and way == "fleet, stage 1":
        return ""
    if device == "cpu":
        return N_("Paddle refuses it on a CPU")
    return fused_buffers.why_not(device, cards)


def trained(way: str, parts: int, seed: int) -> Trained:
    """On a rank: three steps of AdamW with the rows of this rank in some parts."""
    network, optimizer = _new(seed)
    parameters = list(network.parameters())
    model, sharded = WAYS[way](network, optimizer, parts)
    for step in range(STEPS):
        for rows in np.split(_rows(seed, step, dist.get_rank()), parts):
            (model(paddle.to_tensor(rows)).square().mean() / parts).backward()
        sharded.step()
        _clear(sharded, parameters, is_linked="parameters cut" in way)
    if hasattr(model, "get_all_parameters"):  # of stage 3, in which a rank has parts
        model.get_all_parameters()
    states = [state for kind in optimizer._accumulators.values() for state in kind.values()]
    return Trained([each.numpy() for each in parameters], sum(int(state.size) for state in states))


@paddle.no_grad()
def _clear(sharded: Any, parameters: list[Any], is_linked: bool) -> None:
    """Begin the gradients again. is_linked: they are parts of the buffers that the optimizer sends, and must stay so.

    After clear_grad they do not, seen with Paddle 3.3.1 on a CPU too: the next gradient is new memory, and zeros are sent.
    """
    if not is_linked:
        sharded.clear_grad()
        return
    for each in parameters:
        each.grad.zero_()


def trained_alone(ranks: int, seed: int) -> Trained:
    """The same steps in one process, with the rows of all ranks in one batch."""
    network, optimizer = _new(seed)
    for step in range(STEPS):
        rows = np.concatenate([_rows(seed, step, rank) for rank in range(ranks)])
        network(paddle.to_tensor(rows)).square().mean().backward()
        optimizer.step()
        optimizer.clear_grad()
    states = [state for kind in optimizer._accumulators.values() for state in kind.values()]
    return Trained([each.numpy() for each in network.parameters()], sum(int(state.size) for state in states))


def _new(seed: int) -> tuple[Any, Any]:
    paddle.seed(seed)
    width, hidden, out = WIDTHS
    network = paddle.nn.Sequential(paddle.nn.Linear(width, hidden), paddle.nn.Tanh(), paddle.nn.Linear(hidden, out))
    return network, paddle.optimizer.AdamW(RATE, epsilon=EPSILON, parameters=network.parameters())


def _rows(seed: int, step: int, rank: int) -> np.ndarray:
    return np.random.default_rng([seed, step, rank]).standard_normal((ROWS, WIDTHS[0])).astype("float32")
