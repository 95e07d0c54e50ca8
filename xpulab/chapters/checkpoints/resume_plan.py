"""How chapter 05 trains, interrupts and resumes a model: all cases of a tiny one, few of a large one, and what these need."""

from __future__ import annotations

from dataclasses import dataclass

from xpulab.chapters.shared import processes, resources
from xpulab.chapters.shared.model_size import TINY, parameters_of

PROCESS_BYTES = 1.5 * resources.GB
"""Memory of the notebook and of a process that trains, before there is a model; measured on the CPU."""
BYTES_A_PARAMETER = 38
"""Memory of one training process at its peak, while it pickles the optimizer's state; measured with SmolLM2-135M on the CPU."""
DISK_A_PARAMETER = 12.9
"""Bytes of a checkpoint: weights, a tied head once more, and two moments; measured with SmolLM2-135M."""
CHECKPOINTS_AT_ONCE = 5
"""Checkpoints of all weights that are on the disk at the same time."""
SECONDS_A_BILLION = 2200
"""Seconds of the chapter for each billion parameters, on two cores; measured with SmolLM2-135M."""


@dataclass(frozen=True)
class ResumePlan:
    """How to train and to resume one model.

    parameters: of the model. steps: of an uninterrupted run. epoch: steps of an epoch, of `pairs` pairs in batches of `batch`.
    points: the steps after which runs are resumed. kinds: the kinds of runs that are tried; empty: all.
    read_back: the kinds of runs whose files are compared with the weights that were loaded from them.
    at_once: processes that train at the same time.
    """

    parameters: int
    steps: int
    epoch: int
    pairs: int
    batch: int
    learning_rate: float
    points: tuple[int, ...]
    read_back: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    at_once: int = processes.AT_MOST

    @property
    def is_tiny(self) -> bool:
        """Whether the model is tiny, so that every case is tried."""
        return self.parameters < TINY

    @property
    def time_limit(self) -> float:
        """The time limit of one process, in seconds."""
        return processes.SECONDS + self.parameters * SECONDS_A_BILLION / 10**9

    @property
    def why_skipped(self) -> str:
        """Why a large model skips a case: what it would need."""
        disk = len(self.points) * DISK_A_PARAMETER * self.parameters / resources.GB
        return f"it needs further runs of this model, each with {disk:.1f} GB of checkpoints; a tiny model runs all of them"

    def tries(self, kind: str) -> bool:
        """Whether this kind of run is tried."""
        return not self.kinds or kind in self.kinds

    def resumes(self, kind: str) -> bool:
        """Whether this kind of run is resumed; those without dropout of a large model are only compared with those with it."""
        return not self.kinds or kind.endswith("dropout")

    def require(self) -> None:
        """For a model that is not tiny, print what the chapter needs. Raises InputError when it is not there."""
        if not self.is_tiny:
            resources.require(
                memory=PROCESS_BYTES + BYTES_A_PARAMETER * self.parameters,
                disk=CHECKPOINTS_AT_ONCE * DISK_A_PARAMETER * self.parameters,
                seconds=SECONDS_A_BILLION * self.parameters / 10**9,
            )


def plan_for(model: str, level: str) -> ResumePlan:
    """The plan for a model at a level."""
    parameters = parameters_of(model)
    if parameters < TINY:
        steps = 12 if level == "standard" else 4
        return ResumePlan(
            parameters,
            steps,
            epoch=2,
            pairs=6,
            batch=4,
            learning_rate=3e-3,
            points=tuple(range(1, steps)),
            read_back=("plain", "unified"),
        )
    return ResumePlan(
        parameters,
        steps=4,
        epoch=2,
        pairs=8,
        batch=4,
        learning_rate=1e-5,
        points=(2, 3),  # where an epoch ends, and within the second one
        read_back=("plain, dropout", "unified, dropout"),
        kinds=("plain, dropout", "unified, dropout", "LoRA", "LoRA, dropout"),
        at_once=1,
    )
