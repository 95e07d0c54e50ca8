"""The faults of this chapter."""

from __future__ import annotations

from typing import Any
from unittest import mock

from xpulab.chapters.shared.fault import FILES, dist, fault, paddle, replace_in_file, wrap

API = "paddle.distributed.auto_parallel.api"


@fault(
    "auto-parallel-config.gradients",
    "shard-optimizer.steps",
    "parallel-loss.values",
    where="ranks",
    smoke=("auto-parallel-config.smoke-gradient",),
    wraps="paddle:Tensor.backward",
)
def gradient_doubled(real, self, *args, **kwargs):
    """Every backward pass on the ranks gives twice the gradient."""
    return real(self * 2, *args, **kwargs)


@fault("shard-layer.first-layers", "auto-parallel-config.gradients", where="ranks", after="paddle.nn:Linear.forward")
def row_bias_on_every_rank(out, self, x):
    """A row-parallel layer adds its bias once for each rank."""
    row = self.weight.is_dist() and any(each.is_shard(0) for each in self.weight.placements)
    return out + self.bias if row and self.bias is not None else out


@fault(
    "shard-optimizer.steps",
    "auto-parallel-config.letters",
    "shard-optimizer.exercise-moments",
    where="ranks",
    wraps="paddle.distributed:shard_optimizer",
    lanes=("sim",),
)
def state_not_sharded(real, optimizer, how=None, *rest, **kwargs):
    """The function shard_optimizer leaves the whole state on every rank."""
    return real(optimizer, None, *rest, **kwargs)


@fault("shard-optimizer.steps", where="ranks", wraps=f"{API}:_ShardingStageBase._register_hook_for_param_grad")
def stage_2_mixes_rows_of_a_gradient(real, self, param):
    """From stage 2 of the sharded optimizer on, the hook of a weight exchanges the halves of its gradient."""

    def exchange_halves(gradient: Any) -> Any:
        local = gradient._local_value()
        local.set_value(paddle.roll(local, local.shape[0] // 2, axis=0))
        return gradient

    real(self, param)
    param.register_hook(exchange_halves)


@fault(
    "shard-layer.first-layers",
    "auto-parallel-config.gradients",
    where="ranks",
    breaks=("paddle.distributed:shard_layer", "paddle.distributed:parallelize"),
    lanes=("sim",),
)
def model_not_cut() -> None:
    """The functions shard_layer and parallelize leave the whole weights on every rank."""
    wrap("paddle.distributed:shard_layer", lambda real, layer, mesh, function=None, **named: real(layer, mesh, **named))
    wrap("paddle.distributed:parallelize", lambda _real, model, optimizer=None, **_named: (model, optimizer))


@fault("shard-layer.training", where="ranks", wraps=f"{API}:ShardDataloader.__init__")
def rows_the_same_on_every_rank(real, self, *args, **kwargs):
    """The function shard_dataloader gives every rank the rows of the first rank."""
    with mock.patch("paddle.distributed.get_rank", lambda *_: 0):
        real(self, *args, **kwargs)


@fault("parallel-loss.values", where="ranks", wraps="paddle.nn.functional:cross_entropy", lanes=("sim",))
def ignored_labels_are_class_zero(real, logits, labels, *rest, **kwargs):
    """Cross entropy of cut logits takes a label that is to be ignored for class 0."""
    if not logits.is_dist():
        return real(logits, labels, *rest, **kwargs)
    local = labels._local_value()
    local = paddle.where(local < 0, paddle.zeros_like(local), local)
    labels = dist.auto_parallel.api.dtensor_from_local(local, labels.process_mesh, labels.placements)
    return real(logits, labels, *rest, **kwargs)


@fault("mesh-fallback.values", lanes=("cpu", "sim"), where="ranks", wraps="paddle:cumsum")
def smaller_axis_keeps_its_cut(real, x, axis=None, **kwargs):
    """Where rows cannot stay cut along both axes, the smaller axis keeps its cut."""
    if x.is_dist():
        sizes = x.process_mesh.shape
        keeps = sizes.index(min(sizes))
        placements = [dist.Shard(0) if index == keeps else dist.Replicate() for index in range(len(sizes))]
        x = dist.reshard(x, x.process_mesh, placements)
    return real(x, axis=axis, **kwargs)


@fault(
    "reshard.first-placements", "reshard.exercise-axes", where="ranks", wraps="paddle.distributed:shard_tensor", lanes=("sim",)
)
def parts_of_the_other_rank(real, data, mesh, placements, *rest, **kwargs):
    """The function shard_tensor gives each of two ranks the part of the other one."""
    cut = [each.get_dim() for each in placements if each.is_shard()]
    if cut and data.stop_gradient and not data.is_dist():
        data = paddle.roll(data, data.shape[cut[0]] // 2, axis=cut[0])
    return real(data, mesh, placements, *rest, **kwargs)


@fault(
    "reshard.values",
    "shard-optimizer.steps",
    lanes=("sim",),
    sim_faults="flip collective kind=all_gather rank=1 bit=20 from=1",
    smoke=("reshard.smoke-values",),
)
def gathered_parts_damaged() -> None:
    """A card inverts one bit of what it gathers from the other ranks."""


@fault(
    "reshard.values",
    "auto-parallel-config.sequence-parallel",
    lanes=("sim",),
    sim_faults="flip collective kind=reduce_scatter rank=1 bit=20 from=1",
)
def part_of_a_sum_damaged() -> None:
    """A card inverts one bit of its part of a sum over the ranks."""


@fault("reshard.values", where="ranks", after="paddle.distributed:reshard")
def uneven_rows_shifted(result, tensor, mesh, placements):
    """Reshard shifts the rows by one where a number of rows is odd."""
    if tensor.shape[0] % 2:
        local = result._local_value()
        return dist.auto_parallel.api.dtensor_from_local(paddle.roll(local, 1, axis=0), mesh, placements)


@fault("reshard.values", where="ranks", after="paddle.distributed:reshard")
def int64_becomes_float32_when_gathered(result, tensor, mesh, placements):
    """Reshard of int64 to whole tensors goes through float32."""
    if all(each.is_replicated() for each in placements) and tensor.dtype == paddle.int64:
        result._local_value().set_value(result._local_value().astype("float32").astype("int64"))


@fault("auto-parallel-config.take-home", breaks=FILES)
def script_sums_only_what_is_whole() -> None:
    """The script to take home adds up the summands only where the result is not cut."""
    replace_in_file("data/take_home/auto_trainer.py", "any(each.is_shard() for each in placements)", "False")


@fault("auto-parallel-config.resume", where="ranks", wraps="paddle.distributed:load_state_dict")
def moments_of_a_checkpoint_not_loaded(real, state_dict, path, *given, **named):
    """Loading a distributed checkpoint leaves AdamW's moments as they are."""
    real({name: value for name, value in state_dict.items() if "_moment" not in name}, path, *given, **named)


@fault("auto-parallel-config.pinned", where="ranks", wraps="paddle.distributed:load_state_dict", lanes=("sim",))
def names_of_a_checkpoint_refused(real, state_dict, path, *given, **named):
    """Loading a distributed checkpoint refuses names with a point."""
    if any("." in name for name in state_dict):
        raise ValueError("a name has a point")
    real(state_dict, path, *given, **named)


@fault("auto-parallel-config.pipeline", lanes=("sim",), where="ranks", wraps="paddle.distributed:reshard")
def what_goes_to_the_next_stage_is_larger(real, tensor, mesh, placements):
    """A tensor that goes to a mesh of other ranks arrives one and a half times as large."""
    result = real(tensor, mesh, placements)
    return result if tensor.process_mesh == mesh else 1.5 * result
