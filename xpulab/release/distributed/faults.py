"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault

MESH = "paddle.distributed.auto_parallel.process_mesh"
LAYERS = "paddle.distributed.fleet.layers.mpu.mp_layers"
PIPELINE = "paddle.distributed.fleet.meta_parallel.pipeline_parallel:PipelineParallel"
LOADING = "paddle.distributed.flex_checkpoint.dcp.load_state_dict"
STAGES = "paddle.distributed.fleet.meta_parallel.parallel_layers.pp_layers:PipelineLayer"


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


@fault("parallel-loss.layer-options", where="ranks", wraps=f"{LAYERS}:RowParallelLinear.forward", lanes=("sim",))
def bias_added_on_each_rank(real, self, x):
    """RowParallelLinear adds its bias once for each rank of the group."""
    result = real(self, x)
    return result if self.bias is None else result + (self.world_size - 1) * self.bias


@fault("pipeline.fleet-options", where="ranks", wraps=f"{PIPELINE}.train_batch", lanes=("sim",))
def schedule_is_not_read(real, self, data, optimizer, lr_scheduler=None, **named):
    """The function train_batch takes no step of the schedule that it is given."""
    return real(self, data, optimizer, None, **named)


@fault("pipeline.chunks", where="ranks", wraps=f"{STAGES}.update_run_function", lanes=("sim",))
def every_chunk_is_the_first(real, self, chunk_id):
    """A stage of several chunks computes the first one, whichever is asked for."""
    return real(self, chunk_id and 0)


@fault("shard-layer.call-options", where="ranks", wraps="paddle.distributed:local_map", lanes=("cpu", "sim"))
def inputs_are_not_resharded(real, func, out_placements, in_placements=None, process_mesh=None, reshard_inputs=False):
    """The function local_map takes the inputs as they are placed."""
    return real(func, out_placements, None, process_mesh)


@fault("shard-layer.types", where="ranks", wraps="paddle.distributed:shard_tensor")
def type_is_not_read(real, data, mesh, placements, dtype=None, **named):
    """The function shard_tensor does not read the type that it is given."""
    return real(data, mesh, placements, **named)


@fault("auto-parallel-config.programs", where="ranks", wraps="paddle.distributed:Strategy.__init__")
def strategy_is_not_read(real, self, config=None):
    """Strategy does not read its dictionary."""
    real(self)


@fault(
    "distributed-checkpoint.call-options",
    where="ranks",
    wraps="paddle.distributed:load_merged_state_dict",
    lanes=("cpu", "sim"),
)
def prefix_is_kept(real, path, prefix=None, **named):
    """The function load_merged_state_dict keeps the prefix in the names."""
    return {name if prefix is None else f"{prefix}.{name}": value for name, value in real(path, prefix, **named).items()}


@fault("distributed-checkpoint.numbers", where="ranks", wraps=f"{LOADING}:get_checkpoint_files")
def number_is_not_read(real, path, use_cache=True, unique_id=None, **named):
    """Loading takes the second checkpoint, whatever the number."""
    return real(path, use_cache, 2, **named)
