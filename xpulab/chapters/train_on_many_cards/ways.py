"""The ways in which cards can share a training, and the arguments of PaddleNLP's Trainer for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xpulab.messages import N_

Arguments = dict[str, Any]

_SHARDED: Arguments = {"sharding": "stage1"}
_TENSOR: Arguments = {"tensor_parallel_degree": 2}
_PIPELINE: Arguments = {"pipeline_parallel_degree": 2}
_CHOSEN: Arguments = {
    "sharding_parallel_degree": 2,
    "sharding_comm_buffer_size_MB": 1,
    "sharding_parallel_config": "disable_stage1_reduce_avg enable_release_grads",
    "tensor_parallel_config": "sync_param sync_grad sync_moment",
    "hybrid_parallel_topo_order": "sharding_first",
}
_SENT: Arguments = {
    "sharding_degree": 2,
    "pipeline_parallel_config": "disable_partial_send_recv disable_p2p_cache_shape enable_clear_every_step_cache",
}
"""How groups are made and what is sent, other than by default: the training stays that of one card."""
_CARDS = ("gpu", "xpu", "sim")
_EVERYWHERE = (*_CARDS, "cpu")


@dataclass(frozen=True)
class Way:
    """One way. cards: how many it needs. arguments: of the Trainer. devices: those that can do it."""

    cards: int
    arguments: Arguments
    devices: tuple[str, ...]

    def shares_of(self, sizes: Sequence[int]) -> list[float]:
        """The shares of weights and moments that the fullest rank should have. sizes: of the weights, in the model's order."""
        cut = self.arguments.get("tensor_parallel_degree", 1) * self.arguments.get("pipeline_parallel_degree", 1)
        stage = self.arguments.get("sharding")
        of_moments = {None: 1.0, "stage1": 1 / 2, "stage2": fullest(sizes) / sum(sizes)}[stage]
        return [1 / cut, of_moments / cut]


def batch_of(rows: int, parts: int, groups: int) -> dict[str, int]:
    """The arguments with which a step has so many rows, as the mean over so many parts.

    groups: how many cards, or groups of cards that share a model, have rows of their own. A group computes parts / groups parts
    one after the other. In a pipeline a batch of evaluation must be as large as that of a step.
    """
    accumulation = parts // groups
    size = rows // parts
    return {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": accumulation,
        "per_device_eval_batch_size": size * accumulation,
    }


def _way(cards: int, groups: int, arguments: Arguments, devices: tuple[str, ...] = _CARDS) -> Way:
    return Way(cards, arguments | batch_of(8, parts=2, groups=groups), devices)


WAYS = {
    "data parallel": _way(2, 2, {}, _EVERYWHERE),
    "sharding, stage 1": _way(2, 2, _SHARDED, _EVERYWHERE),
    "sharding, stage 2": _way(2, 2, {"sharding": "stage2"}),
    "tensor parallel": _way(2, 1, _TENSOR),
    "sequence parallel": _way(2, 1, _TENSOR | {"sequence_parallel": True}),
    "pipeline": _way(2, 1, _PIPELINE),
    "tensor and data": _way(4, 2, _TENSOR),
    "tensor and sharding": _way(4, 2, _TENSOR | _SHARDED | _CHOSEN),
    "tensor and pipeline": _way(4, 1, _TENSOR | _PIPELINE),
    "tensor, pipeline, sharding": _way(8, 2, _TENSOR | _PIPELINE | _SHARDED | _SENT),
}
"""By name. On a CPU Paddle refuses stage 2, and gloo has no reduce_scatter."""


def fullest(sizes: Sequence[int]) -> int:
    """Numbers that the fullest of two ranks gets in stage 2: Paddle gives each weight to the rank that has the least."""
    held = [0, 0]
    for size in sizes:
        held[held.index(min(held))] += size
    return max(held)


def possible(device: str, cards: int) -> dict[str, Way]:
    """The ways that this device can do with so many cards; two ranks of a CPU always."""
    count = max(cards, 2)
    return {name: way for name, way in WAYS.items() if device in way.devices and way.cards <= count}


def no_bf16(device: str) -> str:
    """Why a device has no bf16 training; "" where it has."""
    return N_("the kernels of a CPU have no bfloat16 for this model") if device == "cpu" else ""
