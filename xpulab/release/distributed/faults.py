"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault

MESH = "paddle.distributed.auto_parallel.process_mesh"


@fault("collectives.group-options", where="ranks", wraps="paddle.distributed:get_group", lanes=("cpu", "sim"))
def every_id_is_that_of_the_first_group(real, id=0):
    """The function get_group returns the group of all ranks, whatever the id."""
    return real(0)


@fault("collectives.mesh-groups", where="ranks", after=f"{MESH}:_get_group_map")
def groups_are_not_found(result):
    """ProcessMesh.get_group makes a new group where there is one with the same ranks."""
    return {}


@fault("collectives.spawn", where="ranks", wraps="paddle.distributed:spawn")
def arguments_are_lost(real, func, args, **named):
    """The function spawn gives its processes another first argument."""
    return real(func, ("another", *args[1:]), **named)
