"""The catalogue of faults: each breaks one thing that training relies on, and names the checks that must detect it.

A module holds faults of one notebook. xpulab.faults.selftest runs the notebook's sections with each of them.
"""

from __future__ import annotations

from types import ModuleType

from xpulab.faults.catalogue import (
    auto_parallel,
    cards,
    checkpoint_damage,
    checkpoints,
    collective_matrix,
    collectives,
    distributed_checkpoints,
    dpo,
    environment,
    export,
    first_lora,
    lora,
    memory,
    memory_of_ranks,
    moe,
    numerics,
    operators,
    parallel_plan,
    pipeline,
    precision,
    repeatability,
    sft,
    tensors,
    zero_cost_checkpoints,
)
from xpulab.faults.fault import Fault


def faults_in(module: ModuleType) -> tuple[Fault, ...]:
    """The faults that a module defines, in the order of its source."""
    return tuple(value for value in vars(module).values() if isinstance(value, Fault))


CATALOGUE: tuple[Fault, ...] = tuple(
    fault
    for module in (
        environment,
        cards,
        first_lora,
        sft,
        lora,
        dpo,
        checkpoints,
        checkpoint_damage,
        collectives,
        collective_matrix,
        auto_parallel,
        parallel_plan,
        pipeline,
        moe,
        memory,
        memory_of_ranks,
        distributed_checkpoints,
        zero_cost_checkpoints,
        numerics,
        precision,
        repeatability,
        operators,
        tensors,
        export,
    )
    for fault in faults_in(module)
)
"""All faults, in the order of the notebooks."""
