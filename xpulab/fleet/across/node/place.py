"""Who a task is, from the variables that Slurm gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xpulab.errors import InputError

_CARDS_OF = {
    "gpu": ("CUDA_VISIBLE_DEVICES",),
    "xpu": ("XPULINK_VISIBLE_DEVICES", "XPU_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""The variables that choose the visible cards, in the order in which Paddle's launcher reads them."""


@dataclass(frozen=True)
class Place:
    """One task of a step.

    task: its number in the step (SLURM_PROCID). tasks: how many the step has. local: its number on its node. node: its name.
    step_nodes: all nodes of the step, as a list that Slurm can expand. step: "JOB.STEP", as scancel takes it.
    """

    task: int
    tasks: int
    local: int
    node: str
    step_nodes: str
    step: str


def place_of(environment: Mapping[str, str]) -> Place:
    """The place of this task. Raises InputError when Slurm did not start it."""
    try:
        return Place(
            task=int(environment["SLURM_PROCID"]),
            tasks=int(environment["SLURM_NTASKS"]),
            local=int(environment["SLURM_LOCALID"]),
            node=environment["SLURMD_NODENAME"],
            step_nodes=environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"],
            step=f"{environment['SLURM_JOB_ID']}.{environment['SLURM_STEP_ID']}",
        )
    except (KeyError, ValueError) as error:
        raise InputError(f"this is no task of srun ({error!r}): start it with `xpulab fleet links`") from error


def card_of(local: int, device: str, environment: Mapping[str, str]) -> int:
    """The number of a task's card as Paddle counts: Slurm may let each task see all cards of the node, or its own only."""
    for name in _CARDS_OF.get(device, ()):
        if visible := [each for each in environment.get(name, "").split(",") if each.strip()]:
            return local if local < len(visible) else local % len(visible)
    return local
