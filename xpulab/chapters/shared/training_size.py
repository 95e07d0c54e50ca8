"""How much a chapter trains, and what it needs, with a model of a given size: chosen here, once, by the number of weights.

The tiny models of data/models train for many steps, so that they learn the answers by heart. A pretrained
model needs few steps, a small batch and a small learning rate, and it is judged by its improvement over its own start.

    size = choose("sft", AutoConfig.from_pretrained(folder), level)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from xpulab.chapters.shared.model_size import TINY, parameters_in
from xpulab.chapters.shared.resources import require


@dataclass(frozen=True)
class TrainingSize:
    """How much a chapter trains and asks with a model of one size.

    tiny: whether the model is smaller than model_size.TINY.
    steps: optimizer steps of a run, 1 or more. batch: examples in a batch.
    learning_rate: the highest one, after `warmup` steps.
    repeated: the steps that the proof repeats, 1 to `steps`; also those of a short run.
    loss_share: what the last losses must stay below, as a share of the first one, between 0 and 1.
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

    @property
    def means_of_recall(self) -> str:
        """What the check of the answers to training questions states."""
        if self.tiny:
            return "every training question is answered exactly"
        return "the answers to training questions are nearer to the wanted ones than before"

    @property
    def means_of_learning(self) -> str:
        """What a short run does, by `heldout_share`."""
        return "halves the loss" if self.tiny else f"reduces the loss to less than {self.heldout_share:.0%}"

    @property
    def means_of_new_wording(self) -> str:
        """What the check of the answers to held-out questions states."""
        if self.tiny:
            return "more than half of the questions in a new wording are answered"
        return "the answers to questions in a new wording are nearer to the wanted ones than before"


@dataclass(frozen=True)
class Needs:
    """What a chapter with a model that is not tiny needs at its peak, by parameter.

    The factors were measured on SmolLM2-135M at level quick, while other programs used the same two cores.

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
        level: TrainingSize(True, steps, batch, 1e-2, 5, short, 0.1, 0.5, questions=16, rows_by_numpy=batch)
        for level, steps, batch, short in zip(_LEVELS, (48, 48, 150), (8, 8, 16), (12, 12, 60), strict=True)
    },
}

_PRETRAINED: Mapping[str, Mapping[str, TrainingSize]] = {
    "sft": {
        level: TrainingSize(False, steps, 4, 1e-4, 4, repeated, 0.7, 0.8, questions=8, rows_by_numpy=2)
        for level, steps, repeated in zip(_LEVELS, (18, 18, 54), (3, 3, 12), strict=True)
    },
    "lora": {
        level: TrainingSize(False, steps, 4, 2e-3, 2, short, 0.8, 0.95, questions=8, rows_by_numpy=2)
        for level, steps, short in zip(_LEVELS, (12, 12, 48), (4, 4, 12), strict=True)
    },
}

_NEEDS: Mapping[str, Needs] = {
    "sft": Needs(memory=56, other=0.8e9, disk=6, seconds=1.4),
    "lora": Needs(memory=56, other=1.0e9, disk=8, seconds=1.7),
}


def choose(chapter: str, config: Any, level: str) -> TrainingSize:
    """What a chapter does with the model of this configuration; nothing of the model has to be loaded yet.

    chapter: "sft" or "lora". level: "smoke", "quick" or "standard". For a model that is not tiny it prints the memory, disk
    and time that the chapter needs. Raises InputError when memory or disk is not there.
    """
    parameters = parameters_in(config)
    if parameters < TINY:
        return _TINY[chapter][level]
    require(**needs(chapter, parameters))
    return _PRETRAINED[chapter][level]


def needs(chapter: str, parameters: int) -> dict[str, float]:
    """Memory and disk in bytes and the seconds that a chapter needs, as arguments of resources.require."""
    factors = _NEEDS[chapter]
    return {
        "memory": factors.memory * parameters + factors.other,
        "disk": factors.disk * parameters,
        "seconds": factors.seconds * parameters / 1e6,
    }


def format_share(share: float) -> str:
    """A share as words: "a tenth", "half", or "70%"."""
    return {0.1: "a tenth", 0.5: "half"}.get(share, f"{share:.0%}")
