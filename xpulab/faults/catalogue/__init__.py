"""The catalogue of faults: each breaks one thing that training relies on, and names the checks that must detect it.

A module holds the faults of one notebook. xpulab.faults.selftest runs the notebook's sections with each of them.
"""

from __future__ import annotations

from xpulab.faults.catalogue import (
    auto_parallel,
    checkpoints,
    collectives,
    distributed_checkpoints,
    dpo,
    environment,
    lora,
    pipeline,
    sft,
)
from xpulab.faults.fault import Fault

CATALOGUE: tuple[Fault, ...] = (
    *environment.FAULTS,
    *sft.FAULTS,
    *lora.FAULTS,
    *dpo.FAULTS,
    *checkpoints.FAULTS,
    *collectives.FAULTS,
    *auto_parallel.FAULTS,
    *pipeline.FAULTS,
    *distributed_checkpoints.FAULTS,
)
"""All faults, in the order of the notebooks."""
