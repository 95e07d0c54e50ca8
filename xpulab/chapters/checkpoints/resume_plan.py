"""How chapter 06 trains, interrupts and resumes a model: all cases of a tiny one, few of a large one, and what these need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle.nn.functional as F

from xpulab.chapters.shared import processes
from xpulab.chapters.shared.training_size import TINY, Needs, Size, parameters_of
from xpulab.messages import N_

CHECKPOINT = 12.9
"""Bytes of a checkpoint for each parameter: weights, a tied head once more, and two moments; measured with SmolLM2-135M."""
NEEDS = Needs(memory=38, other=1.5e9, disk=2 * CHECKPOINT, seconds=1.8)
"""Memory of the notebook and of a process that trains, at its peak while it pickles the optimizer's state; two checkpoints of
all weights are on the disk at the same time. Measured with SmolLM2-135M on the CPU."""

WHY_SKIPPED = N_("it needs further runs of this model, each with checkpoints of all weights; a tiny model runs all of them")
"""Why a large model skips a case."""


@dataclass(frozen=True)
class ResumePlan(Size):
    """How to train and to resume one model.

    steps: of an uninterrupted run. epoch: steps of an epoch, of `pairs` pairs in batches of `batch`.
    points: the steps after which runs are resumed.
    at_once: processes that train at the same time.
    """

    steps: int
    epoch: int
    pairs: int
    batch: int
    learning_rate: float
    points: tuple[int, ...]
    at_once: int = processes.AT_MOST

    @property
    def time_limit(self) -> float:
        """The time limit of one process, in seconds."""
        return processes.SECONDS + self.seconds


def plan_for(model: str, level: str) -> ResumePlan:
    """The plan for a model at a level."""
    parameters = parameters_of(model)
    if parameters < TINY:
        steps = 12 if level == "standard" else 4
        return ResumePlan(
            parameters,
            NEEDS,
            steps,
            epoch=2,
            pairs=6,
            batch=4,
            learning_rate=3e-3,
            points=tuple(range(1, steps)),
        )
    return ResumePlan(
        parameters,
        NEEDS,
        steps=4,
        epoch=2,
        pairs=8,
        batch=4,
        learning_rate=1e-5,
        points=(2, 3),  # where an epoch ends, and within the second one
        at_once=1,
    )


def with_dropout(network: Any, rate: float) -> Any:
    """The network, with this dropout in its attention, or behind its embeddings if its attention has none, as in Llama.

    rate: the share of values that are set to 0 at random while training.
    """
    if hasattr(network.config, "attention_dropout"):
        network.config.attention_dropout = rate
    elif rate:
        embedding = network.get_input_embeddings()
        embedding.register_forward_post_hook(lambda layer, given, output: F.dropout(output, rate, training=layer.training))
    return network
