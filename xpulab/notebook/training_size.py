"""How much a chapter trains, and what it needs, with a model of a given size: chosen here, once, by the number of weights.

The tiny models of data/models train on large batches for many steps, so that they learn the answers by heart. A pretrained
model needs few steps, a small batch and a small learning rate, and it is judged by its improvement over its own start.

    size = choose("sft", parameters, level)
    if not size.tiny:
        require(**needs("sft", parameters))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TINY_BELOW = 5_000_000
"""A model with fewer weights is tiny: every comparison with numpy takes less than a second."""

BYTES = 4
"""Of a weight in single precision."""


@dataclass(frozen=True)
class TrainingSize:
    """How much a chapter trains and asks with a model of one size.

    tiny: whether the model is smaller than TINY_BELOW.
    steps: optimizer steps of a run, 1 or more. batch: examples in a batch.
    learning_rate: the highest one, after `warmup` steps.
    repeated: the steps that the proof repeats, 1 to `steps`; also those of a short run.
    loss_share: what the last loss must stay below, as a share of the first one, between 0 and 1.
    heldout_share: the same for the loss on held-out rows.
    questions: how many training questions the model is asked.
    rows_by_numpy: how many examples numpy computes, at most.
    """

    tiny: bool
    steps: int
    batch: int
    learning_rate: float
    warmup: int
    repeated: int
    loss_share: float
    heldout_share: float
    questions: int
    rows_by_numpy: int


@dataclass(frozen=True)
class Needs:
    """What a chapter with a model that is not tiny needs at its peak, by parameter, as measured at level quick.

    memory: bytes for each weight, and `other` bytes for everything else. disk: bytes for each weight.
    seconds: for each million weights, on two cores.
    """

    memory: float
    other: float
    disk: float
    seconds: float


_LEVELS = ("smoke", "quick", "standard")

_TINY: Mapping[str, Mapping[str, TrainingSize]] = {
    "sft": {
        level: TrainingSize(True, steps, 24, 8e-3, 10, repeated, 0.1, 0.5, questions=72, rows_by_numpy=24)
        for level, steps, repeated in zip(_LEVELS, (100, 100, 300), (20, 20, 300), strict=True)
    },
    "lora": {
        level: TrainingSize(True, steps, 16, 1e-2, 5, short, 0.1, 0.5, questions=16, rows_by_numpy=16)
        for level, steps, short in zip(_LEVELS, (60, 60, 150), (25, 25, 60), strict=True)
    },
}

_PRETRAINED: Mapping[str, Mapping[str, TrainingSize]] = {
    "sft": {
        level: TrainingSize(False, steps, 4, 1e-4, 4, repeated, 0.7, 0.8, questions=8, rows_by_numpy=2)
        for level, steps, repeated in zip(_LEVELS, (18, 18, 54), (3, 3, 12), strict=True)
    },
    "lora": {
        level: TrainingSize(False, steps, 4, 1e-3, 2, short, 0.7, 0.9, questions=8, rows_by_numpy=2)
        for level, steps, short in zip(_LEVELS, (12, 12, 48), (3, 3, 12), strict=True)
    },
}

_NEEDS: Mapping[str, Needs] = {
    "sft": Needs(memory=48, other=1.0e9, disk=8, seconds=2.2),
    "lora": Needs(memory=36, other=1.0e9, disk=8, seconds=2.2),
}


def choose(chapter: str, parameters: int, level: str) -> TrainingSize:
    """What a chapter ("sft" or "lora") does with a model of so many weights, at the level "smoke", "quick" or "standard"."""
    sizes = _TINY if parameters < TINY_BELOW else _PRETRAINED
    return sizes[chapter][level]


def needs(chapter: str, parameters: int) -> dict[str, float]:
    """Memory and disk in bytes and the seconds that a chapter needs, as arguments of xpulab.notebook.resources.require."""
    factors = _NEEDS[chapter]
    return {
        "memory": factors.memory * parameters + factors.other,
        "disk": factors.disk * parameters,
        "seconds": factors.seconds * parameters / 1e6,
    }
