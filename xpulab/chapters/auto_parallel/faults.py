"""The faults of this chapter."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

from xpulab.chapters.shared.fault import FILES, calls, dist, fault, np, paddle, replace_in_file, wrap

API = "paddle.distributed.auto_parallel.api"


@fault(where="ranks", detected_by=("reshard.values",), smoke=("reshard.smoke-values",), after="paddle.distributed:reshard")
def elements_of_a_shard_shifted(result, tensor, mesh, placements):
    """Reshard shifts the elements of each part by one."""
    if tensor.stop_gradient and len(placements) == 1 and placements[0].is_shard():
        rolled = paddle.roll(result._local_value(), 1)
        return dist.auto_parallel.api.dtensor_from_local(rolled, mesh, placements)


@fault(
    where="ranks",
    detected_by=("reshard.values", "auto-parallel-config.gradients"),
    smoke=("reshard.smoke-values",),
    wraps="paddle.distributed:reshard",
)
def summand_missing(real, tensor, mesh, placements):
    """Reshard adds up the summands of all ranks but one."""
    if any(each.is_partial() for each in tensor.placements) and dist.get_rank() == 1:
        tensor._local_value().scale_(0.0)
    return real(tensor, mesh, placements)


@fault(
    where="ranks",
    detected_by=(
        "auto-parallel-config.gradients",
        "auto-parallel-config.trainer",
        "shard-optimizer.steps",
        "gradient-accumulation.sharded",
        "gradient-accumulation.argument",
        "gradient-accumulation.trainer",
        "parallel-loss.values",
    ),
    smoke=("auto-parallel-config.smoke-gradient",),
    wraps="paddle:Tensor.backward",
)
def gradient_doubled(real, self, *args, **kwargs):
    """Every backward pass on the ranks gives twice the gradient."""
    return real(self * 2, *args, **kwargs)


@fault(
    device="sim",
    where="ranks",
    detected_by=("auto-parallel-config.gradients",),
    smoke=("auto-parallel-config.smoke-gradient",),
    after="paddle:DataParallel.forward",
)
def data_parallel_sums_gradients(out, self, *args, **kwargs):
    """paddle.DataParallel adds up the gradients of the ranks and does not divide by the number of ranks."""
    first = out[0] if isinstance(out, tuple) else out
    first.register_hook(lambda gradient: gradient * dist.get_world_size())


@fault(
    where="ranks",
    detected_by=("shard-layer.first-layers", "auto-parallel-config.loss", "auto-parallel-config.gradients"),
    after="paddle.nn:Linear.forward",
)
def row_bias_on_every_rank(out, self, x):
    """A row-parallel layer adds its bias once for each rank."""
    row = self.weight.is_dist() and any(each.is_shard(0) for each in self.weight.placements)
    return out + self.bias if row and self.bias is not None else out


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.loss", "auto-parallel-config.gradients"),
    wraps="paddle.distributed:shard_tensor",
)
def query_columns_shifted(real, data, mesh, placements, *rest, **kwargs):
    """The columns of a cut query weight are shifted by one head."""
    if any(each.is_shard(1) for each in placements) and data.shape in ([16, 16], [32, 32]) and not data.stop_gradient:
        data.set_value(paddle.roll(data, data.shape[1] // 4, axis=1))
    return real(data, mesh, placements, *rest, **kwargs)


@fault(
    where="ranks",
    detected_by=(
        "shard-optimizer.bytes",
        "shard-optimizer.letters",
        "auto-parallel-config.letters",
        "shard-optimizer.exercise-moments",
    ),
    also_on=("sim",),
    wraps="paddle.distributed:shard_optimizer",
)
def state_not_sharded(real, optimizer, how=None, *rest, **kwargs):
    """The function shard_optimizer leaves the whole state on every rank."""
    return real(optimizer, None, *rest, **kwargs)


@fault(
    where="ranks",
    detected_by=("shard-optimizer.losses", "shard-optimizer.steps"),
    also_on=("sim",),
    wraps=f"{API}:_ShardingStageBase._register_hook_for_param_grad",
)
def stage_2_mixes_rows_of_a_gradient(real, self, param):
    """From stage 2 of the sharded optimizer on, the hook of a weight exchanges the halves of its gradient."""

    def exchange_halves(gradient: Any) -> Any:
        local = gradient._local_value()
        local.set_value(paddle.roll(local, local.shape[0] // 2, axis=0))
        return gradient

    real(self, param)
    param.register_hook(exchange_halves)


@fault(
    where="ranks",
    detected_by=("shard-layer.first-layers", "auto-parallel-config.held"),
    also_on=("sim",),
    breaks=("paddle.distributed:shard_layer", "paddle.distributed:parallelize"),
)
def model_not_cut() -> None:
    """The functions shard_layer and parallelize leave the whole weights on every rank."""
    wrap("paddle.distributed:shard_layer", lambda real, layer, mesh, function=None, **named: real(layer, mesh, **named))
    wrap("paddle.distributed:parallelize", lambda _real, model, optimizer=None, **_named: (model, optimizer))


@fault(
    where="ranks",
    detected_by=("gradient-accumulation.trainer",),
    breaks="paddlenlp.trainer.auto_trainer:AutoTrainer.dynamic_training",
)
def micro_batches_not_divided() -> None:
    """AutoTrainer does not divide the loss of a micro-batch by the number of micro-batches."""
    from xpulab.chapters.shared import workarounds

    def undivided(real, self, *given):
        with mock.patch.object(self.args, "gradient_accumulation_steps", 1):
            return real(self, *given)

    workarounds.restore_distributed_checkpoint()
    wrap("paddlenlp.trainer.auto_trainer:AutoTrainer.dynamic_training", undivided)


@fault(
    where="ranks",
    detected_by=(
        "auto-parallel-config.trainer",
        "auto-parallel-config.letters",
        "auto-parallel-config.pinned",
        "shard-optimizer.letters",
    ),
    wraps=("paddle.distributed.auto_parallel.api:reshard", "paddle.distributed:reshard"),
)
def gradients_of_other_ranks_not_added(real, tensor, mesh, placements):
    """A sharded optimizer cuts the gradient of a rank's own rows, and does not add those of the other ranks."""
    if any(each.is_partial() for each in tensor.placements):
        whole = [dist.Replicate() if each.is_partial() else each for each in tensor.placements]
        tensor = dist.auto_parallel.api.dtensor_from_local(tensor._local_value(), mesh, whole)
    return real(tensor, mesh, placements)


@fault(
    where="ranks",
    detected_by=("shard-dataloader.rows", "shard-layer.training"),
    also_on=("sim",),
    wraps=f"{API}:ShardDataloader.__init__",
)
def rows_the_same_on_every_rank(real, self, *args, **kwargs):
    """The function shard_dataloader gives every rank the rows of the first rank."""
    with mock.patch("paddle.distributed.get_rank", lambda *_: 0):
        real(self, *args, **kwargs)


@fault(where="ranks", detected_by=("parallel-loss.values",), also_on=("sim",), wraps="paddle.nn.functional:cross_entropy")
def ignored_labels_are_class_zero(real, logits, labels, *rest, **kwargs):
    """Cross entropy of cut logits takes a label that is to be ignored for class 0."""
    if not logits.is_dist():
        return real(logits, labels, *rest, **kwargs)
    local = labels._local_value()
    local = paddle.where(local < 0, paddle.zeros_like(local), local)
    labels = dist.auto_parallel.api.dtensor_from_local(local, labels.process_mesh, labels.placements)
    return real(logits, labels, *rest, **kwargs)


@fault(where="ranks", detected_by=("parallel-loss.values",), wraps="paddle.nn.functional:cross_entropy")
def softmax_of_local_columns(real, logits, labels, *rest, **kwargs):
    """Cross entropy of cut logits uses the maximum and the sum of the rank's own columns only."""
    if kwargs.get("reduction") != "none" or not logits.is_dist() or not logits.placements[0].is_shard(1):
        return real(logits, labels, *rest, **kwargs)
    local = paddle.nn.functional.log_softmax(logits._local_value(), axis=-1)
    mesh = logits.process_mesh
    probabilities = dist.auto_parallel.api.dtensor_from_local(local, mesh, logits.placements)
    whole, plain = (dist.reshard(each, mesh, [dist.Replicate()]) for each in (probabilities, labels))
    return real(logits, labels, *rest, **kwargs) * 0 - whole.take_along_axis(plain.clip(min=0).unsqueeze(1), 1).squeeze(1)


@fault(where="ranks", detected_by=("mesh-fallback.placements",), also_on=("sim",), wraps="paddle:cumsum")
def smaller_axis_keeps_its_cut(real, x, axis=None, **kwargs):
    """Where rows cannot stay cut along both axes, the smaller axis keeps its cut."""
    if x.is_dist():
        sizes = x.process_mesh.shape
        keeps = sizes.index(min(sizes))
        placements = [dist.Shard(0) if index == keeps else dist.Replicate() for index in range(len(sizes))]
        x = dist.reshard(x, x.process_mesh, placements)
    return real(x, axis=axis, **kwargs)


@fault(where="ranks", detected_by=("mesh-fallback.placements",), also_on=("sim",), wraps="paddle:cumsum")
def second_of_equal_axes_keeps_its_cut(real, x, axis=None, **kwargs):
    """Where rows cannot stay cut along two axes of equal size, the second one keeps its cut."""
    if x.is_dist() and x.process_mesh.shape == [2, 2]:
        x = dist.reshard(x, x.process_mesh, [dist.Replicate(), dist.Shard(0)])
    return real(x, axis=axis, **kwargs)


@fault(where="ranks", detected_by=("mesh-fallback.values",), also_on=("sim",), wraps="paddle.nn.functional:layer_norm")
def gradient_of_a_norm_that_fell_back_too_large(real, x, *args, **kwargs):
    """The gradient of a layer norm whose rows are cut along two axes or more is a hundredth too large."""
    if x.is_dist() and sum(each.is_shard(0) for each in x.placements) > 1 and not x.stop_gradient:
        x = x.clone()
        x.register_hook(lambda gradient: gradient * 1.01)
    return real(x, *args, **kwargs)


@fault(where="ranks", detected_by=("mesh-fallback.values",), after="paddle.nn.functional:layer_norm")
def norm_of_cut_rows_inexact(result, x, *args, **kwargs):
    """Layer norm of rows that are cut along two axes has a relative error of a thousandth."""
    if x.is_dist():
        result._local_value().scale_(1.001)


@fault(where="ranks", detected_by=("parallel-loss.values",), also_on=("sim",), wraps="paddle.nn.functional:embedding")
def wrong_row_of_a_cut_embedding(real, x, weight, *args, **kwargs):
    """An embedding whose rows are cut gives the row of the next token."""
    cut = weight.is_dist() and weight.placements[0].is_shard(0)
    return real((x + 1) % weight.shape[0] if cut else x, weight, *args, **kwargs)


@fault(
    where="ranks",
    detected_by=("reshard.first-placements", "reshard.exercise-axes"),
    also_on=("sim",),
    wraps="paddle.distributed:shard_tensor",
)
def parts_of_the_other_rank(real, data, mesh, placements, *rest, **kwargs):
    """The function shard_tensor gives each of two ranks the part of the other one."""
    cut = [each.get_dim() for each in placements if each.is_shard()]
    if cut and data.stop_gradient and not data.is_dist():
        data = paddle.roll(data, data.shape[cut[0]] // 2, axis=cut[0])
    return real(data, mesh, placements, *rest, **kwargs)


@fault(
    device="sim",
    sim_faults="flip collective kind=all_gather rank=1 bit=20 from=1",
    detected_by=("reshard.values", "shard-optimizer.steps"),
    smoke=("reshard.smoke-values",),
)
def gathered_parts_damaged() -> None:
    """A card inverts one bit of what it gathers from the other ranks."""


@fault(
    device="sim",
    sim_faults="flip collective kind=reduce_scatter rank=1 bit=20 from=1",
    detected_by=("reshard.values", "auto-parallel-config.sequence-parallel"),
)
def part_of_a_sum_damaged() -> None:
    """A card inverts one bit of its part of a sum over the ranks."""


@fault(device="sim", sim_faults="flip collective kind=all_to_all rank=1 bit=20 from=1", detected_by=("reshard.values",))
def exchanged_parts_damaged() -> None:
    """A card inverts one bit of the parts that it gets when another dimension is cut."""


@fault(where="ranks", detected_by=("reshard.values",), wraps="paddle.distributed:reshard")
def one_reshard_not_supported(real, tensor, mesh, placements):
    """Reshard refuses to gather rows on every rank, with an error that reads like a missing kernel."""
    given = tensor.placements or []
    if given and given[0].is_shard(0) and all(each.is_replicated() for each in (*given[1:], *placements)):
        raise NotImplementedError("(Unimplemented) this placement is not supported")
    return real(tensor, mesh, placements)


@fault(where="ranks", detected_by=("reshard.values", "reshard.contents"), after="paddle.distributed:reshard")
def uneven_rows_shifted(result, tensor, mesh, placements):
    """Reshard shifts the rows by one where a number of rows is odd."""
    if tensor.shape[0] % 2:
        local = result._local_value()
        return dist.auto_parallel.api.dtensor_from_local(paddle.roll(local, 1, axis=0), mesh, placements)


@fault(where="ranks", detected_by=("reshard.uneven", "reshard.values"), after="paddle.distributed:reshard")
def gathered_rows_shifted(result, tensor, mesh, placements):
    """Reshard of rows to whole tensors begins with the last row."""
    if tensor.placements[0].is_shard(0) and placements[0].is_replicated():
        result._local_value().set_value(paddle.roll(result._local_value(), 1, axis=0))


@fault(where="ranks", detected_by=("reshard.values",), wraps="paddle.distributed:reshard")
def ranks_of_a_mesh_taken_in_rising_order(real, tensor, mesh, placements):
    """Parts go to the ranks of a mesh in rising order, whichever order the mesh has."""
    whole = all(each.is_replicated() for each in tensor.placements)
    if not whole or mesh.process_ids == sorted(mesh.process_ids):
        return real(tensor, mesh, placements)
    rising = dist.ProcessMesh(np.sort(mesh.process_ids).reshape(mesh.shape), dim_names=mesh.dim_names)
    api = dist.auto_parallel.api
    part = real(api.dtensor_from_local(tensor._local_value(), rising, tensor.placements), rising, placements)
    return api.dtensor_from_local(part._local_value(), mesh, placements)


@fault(where="ranks", detected_by=("reshard.values",), wraps="paddle.distributed:reshard")
def a_dimension_cut_twice_in_the_other_order(real, tensor, mesh, placements):
    """Where two axes of a mesh cut one dimension, the second axis cuts first."""
    cut = [each.get_dim() for each in placements[:2] if each.is_shard()]
    whole = all(each.is_replicated() for each in tensor.placements)
    if len(mesh.shape) != 2 or len(cut) < 2 or cut[0] != cut[1] or not whole:
        return real(tensor, mesh, placements)
    ranks = np.array(mesh.process_ids).reshape(mesh.shape)
    api, other = dist.auto_parallel.api, dist.ProcessMesh(ranks.T, dim_names=mesh.dim_names)
    part = real(api.dtensor_from_local(tensor._local_value(), other, tensor.placements), other, placements)
    return api.dtensor_from_local(part._local_value(), mesh, placements)


@fault(where="ranks", detected_by=("reshard.values",), after="paddle.distributed:reshard")
def third_axis_of_a_mesh_shifted(result, tensor, mesh, placements):
    """Parts that the third axis of a mesh cuts are shifted by one."""
    if len(placements) == 3 and placements[2].is_shard():
        result._local_value().set_value(paddle.roll(result._local_value(), 1))


@fault(where="ranks", detected_by=("reshard.values", "reshard.contents"), wraps="paddle.distributed:reshard")
def summands_are_always_added(real, tensor, mesh, placements):
    """Reshard adds up what a placement declares as maxima, minima, averages or products."""
    added = [dist.Partial() if each.is_partial() else each for each in tensor.placements]
    if added != tensor.placements:
        tensor = dist.auto_parallel.api.dtensor_from_local(tensor._local_value(), tensor.process_mesh, added)
    return real(tensor, mesh, placements)


@fault(where="ranks", detected_by=("reshard.contents",), wraps="paddle.distributed:reshard")
def whole_numbers_moved_in_single_precision(real, tensor, mesh, placements):
    """Reshard of 64-bit integers keeps 24 bits of them."""
    result = real(tensor, mesh, placements)
    if tensor.dtype == paddle.int64:
        result._local_value().set_value(result._local_value().astype("float32").astype("int64"))
    return result


@fault(where="ranks", detected_by=("reshard.contents",), after="paddle.distributed:reshard")
def nan_becomes_zero_when_gathered(result, tensor, mesh, placements):
    """Reshard to whole tensors replaces NaN and infinity by finite numbers."""
    if all(each.is_replicated() for each in placements) and tensor.dtype in (paddle.float32, paddle.float64):
        result._local_value().set_value(paddle.nan_to_num(result._local_value()))


@fault(where="ranks", detected_by=("reshard.contents",), wraps="paddle.distributed:reshard")
def reshard_changes_its_input(real, tensor, mesh, placements):
    """Reshard of summands writes their sum over the summand of a rank."""
    result = real(tensor, mesh, placements)
    if any(each.is_partial() for each in tensor.placements) and all(each.is_replicated() for each in placements):
        tensor._local_value().set_value(result._local_value())
    return result


@fault(device="sim", where="ranks", detected_by=("reshard.contents",), wraps="paddle.distributed:reshard")
def strides_of_a_view_ignored(real, tensor, mesh, placements):
    """Reshard reads the memory of a transposed view in its own order."""
    local = tensor._local_value()
    if not local.is_contiguous():
        in_memory = local.transpose(list(range(local.ndim))[::-1]).contiguous().reshape(local.shape)
        tensor = dist.auto_parallel.api.dtensor_from_local(in_memory, tensor.process_mesh, tensor.placements)
    return real(tensor, mesh, placements)


@fault(where="ranks", detected_by=("reshard.contents",), after="paddle.distributed:reshard")
def gradient_of_a_gathered_tensor_divided(result, tensor, mesh, placements):
    """The gradient of a reshard to whole tensors is divided by the number of ranks."""
    if not tensor.stop_gradient and placements[-1].is_replicated():
        result.register_hook(lambda gradient: gradient / mesh.shape[-1])


@fault(where="ranks", detected_by=("reshard.contents",), after="paddle.distributed:reshard")
def end_of_a_large_tensor_lost(result, tensor, mesh, placements):
    """Of more than 1024 numbers reshard loses the last row."""
    local = result._local_value()
    if local.size > 1024:
        local.set_value(paddle.concat([local[:-1], paddle.zeros_like(local[-1:])]))


@fault(where="ranks", detected_by=("auto-parallel-config.options",), wraps="paddle.nn.clip:_squared_l2_norm")
def norm_of_own_parts_only(real, gradient):
    """The global norm for clipping leaves out the parts that other ranks hold."""
    cut = gradient.is_dist() and any(each.is_shard() for each in gradient.placements)
    if not cut:
        return real(gradient)
    mesh = gradient.process_mesh
    return dist.auto_parallel.api.dtensor_from_local(real(gradient._local_value()), mesh, [dist.Replicate()] * len(mesh.shape))


@fault(where="ranks", detected_by=("auto-parallel-config.options",), wraps="paddle.nn:ClipGradByGlobalNorm._dygraph_clip")
def weights_that_are_not_clipped_are_counted(real, self, params_grads):
    """The global norm counts gradients that are not to be clipped, and clips them."""
    for weight, _ in params_grads:
        weight.need_clip = True
    return real(self, params_grads)


def _start_not_sent(names: str) -> None:
    wrap(
        "paddle.distributed.parallel:sync_params_buffers",
        lambda real, model, *given, **named: None if names == "all" else _without_buffers(real, model, *given, **named),
    )


def _without_buffers(real: Any, model: Any, *given: Any, **named: Any) -> None:
    kept = {name: buffer.clone() for name, buffer in model.named_buffers()}
    real(model, *given, **named)
    for name, buffer in model.named_buffers():
        buffer.set_value(kept[name])


@fault(where="ranks", detected_by=("auto-parallel-config.options",), breaks="paddle.distributed.parallel:sync_params_buffers")
def weights_of_the_first_rank_not_sent() -> None:
    """Under DataParallel each rank starts with its own weights and buffers."""
    _start_not_sent("all")


@fault(where="ranks", detected_by=("auto-parallel-config.options",), breaks="paddle.distributed.parallel:sync_params_buffers")
def buffers_of_the_first_rank_not_sent() -> None:
    """Under DataParallel each rank starts with its own buffers, and the weights of the first."""
    _start_not_sent("buffers")


@fault(where="ranks", detected_by=("auto-parallel-config.options",), after="paddle:DataParallel.forward")
def second_micro_batch_counts_twice(out, self, *given, **named):
    """Under DataParallel the gradient of a micro-batch is doubled where there is a gradient already."""
    first = next(weight for weight in self.parameters() if not weight.stop_gradient)
    if first.grad is not None and float(first.grad.abs().sum()) > 0:
        out.register_hook(lambda gradient: 2 * gradient)


@fault(where="ranks", detected_by=("auto-parallel-config.options",), after="paddle.optimizer:AdamW.step")
def frozen_weights_decay(_result, self):
    """AdamW decays weights that do not learn."""
    for weight in self._parameter_list:
        if weight.stop_gradient:
            local = weight._local_value() if weight.is_dist() else weight
            with paddle.no_grad():
                local.scale_(0.95)


@fault(where="ranks", detected_by=("auto-parallel-config.options",), wraps="paddle:matmul")
def tied_weight_learns_from_the_embedding_only(real, x, y, *given, transpose_y=False, **named):
    """The gradient of a weight that is used a second time, transposed, is lost."""
    return real(x, y.detach() if transpose_y and y.ndim == 2 else y, *given, transpose_y=transpose_y, **named)


@fault(where="ranks", detected_by=("auto-parallel-config.options",), wraps="paddle.distributed:shard_tensor")
def rows_cut_along_the_first_axis(real, data, mesh, placements, *rest, **named):
    """Rows that the second axis of a mesh cuts are declared as cut by the first one."""
    result = real(data, mesh, placements, *rest, **named)
    if data.dtype == paddle.int64 and len(placements) == 2 and placements[1].is_shard():
        return dist.auto_parallel.api.dtensor_from_local(result._local_value(), mesh, placements[::-1])
    return result


@fault(where="ranks", detected_by=("auto-parallel-config.options",), wraps="paddle.optimizer:Momentum.step")
def velocity_forgotten(real, self):
    """Momentum forgets its velocity before each step."""
    for states in self._accumulators.values():
        for state in states.values():
            state.set_value(paddle.zeros_like(state))
    real(self)


SAMPLER = "paddle.io:DistributedBatchSampler"


@fault(detected_by=("shard-dataloader.samplers",), replaces=f"{SAMPLER}.set_epoch")
def epoch_of_a_sampler_ignored(_real):
    """The function set_epoch of DistributedBatchSampler does nothing."""
    return lambda self, epoch: None


@fault(detected_by=("shard-dataloader.samplers",), wraps=f"{SAMPLER}.__iter__")
def every_epoch_in_one_order(real, self):
    """A sampler that shuffles does not count its epochs."""
    epoch = self.epoch
    batches = list(real(self))
    self.epoch = epoch
    return iter(batches)


@fault(where="everywhere", detected_by=("shard-dataloader.samplers", "shard-dataloader.rows"), wraps=f"{SAMPLER}.__iter__")
def last_small_batch_not_dropped(real, self):
    """DistributedBatchSampler keeps the last, smaller batch although it is to be dropped."""
    with mock.patch.object(self, "drop_last", False):
        return iter(list(real(self)))


@fault(where="everywhere", detected_by=("shard-dataloader.samplers", "shard-dataloader.rows"), wraps=f"{SAMPLER}.__iter__")
def filled_up_with_the_last_row(real, self):
    """Where the ranks do not divide the number of rows, the last rank reads the last row once more, not one of the first."""
    batches = [list(batch) for batch in real(self)]
    if batches and self.total_size > len(self.dataset) and self.local_rank == self.nranks - 1:
        batches[-1][-1] = len(self.dataset) - 1
    return iter(batches)


@fault(detected_by=("shard-dataloader.samplers",), after=f"{SAMPLER}.__len__")
def number_of_batches_rounded_down(result, self):
    """The function len() of a sampler leaves out the last, smaller batch."""
    return self.num_samples // self.batch_size


@fault(detected_by=("shard-dataloader.samplers",), wraps="paddle.io:DataLoader.__iter__")
def batches_of_workers_in_another_order(real, self):
    """A DataLoader with workers gives the batches in reverse order."""
    return iter(list(real(self))[::-1]) if self.num_workers else real(self)


@fault(
    level="standard",  # at quick, known issues have all cases that resume
    detected_by=("shard-dataloader.samplers",),
    wraps="paddlenlp.utils.batch_sampler:DistributedBatchSampler.set_epoch",
)
def consumed_samples_read_again(real, self, epoch=0, consumed_samples=0):
    """PaddleNLP's sampler begins with the first row when an epoch is resumed."""
    real(self, epoch, 0)


@fault(where="ranks", detected_by=("shard-dataloader.rows",), replaces=f"{API}:ShardDataloader.__iter__")
def an_epoch_that_was_left_goes_on(_real):
    """The iterator of shard_dataloader goes on where it was left, instead of with a new epoch."""
    return lambda self: self


@fault(detected_by=("gradient-accumulation.micro-batches",), wraps="paddle:Tensor.backward")
def every_second_gradient_halved(real, self, *args, **kwargs):
    """Every second backward pass of the notebook's process adds half of the gradient."""
    return real(self if next(calls) % 2 else self / 2, *args, **kwargs)


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.refusals",),
    wraps="paddlenlp.trainer.training_args:TrainingArguments.__post_init__",
)
def illegal_options_accepted(real, self):
    """PaddleNLP accepts the illegal combinations of options that it refuses with a ValueError or an assertion."""
    with contextlib.suppress(ValueError, AssertionError):
        real(self)


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.pipeline",),
    wraps="paddlenlp.trainer.training_args:TrainingArguments.__post_init__",
)
def micro_batches_of_a_pipeline_refused(real, self):
    """PaddleNLP refuses micro-batches when the model is cut into stages."""
    if self.pipeline_parallel_degree > 1 and self.gradient_accumulation_steps > 1:
        raise ValueError("a pipeline takes one micro-batch")
    real(self)


@fault(
    where="ranks",
    detected_by=("shard-dataloader.declared",),
    also_on=("sim",),
    after=f"{API}:ShardDataloader._get_mesh_and_placement",
)
def batches_declared_whole(result, self, index):
    """The function shard_dataloader declares that every rank holds the whole batch."""
    mesh, placements = result
    return mesh, [dist.Replicate() for _ in placements]


@fault(where="ranks", detected_by=("shard-dataloader.declared",), wraps=f"{API}:dtensor_from_local")
def only_the_first_axis_is_declared(real, tensor, mesh, placements):
    """The function dtensor_from_local declares a cut along the first axis of the mesh, whichever axis it was given."""
    return real(tensor, mesh, sorted(placements, key=lambda each: each.is_replicated()))


@fault(detected_by=("auto-parallel-config.take-home",), breaks=FILES)
def script_sums_only_what_is_whole() -> None:
    """The script to take home adds up the summands only where the result is not cut."""
    replace_in_file("data/take_home/auto_trainer.py", "any(each.is_shard() for each in placements)", "False")


SHARD_DATALOADER = "paddle.distributed.auto_parallel.api:ShardDataloader"


@fault(where="ranks", detected_by=("shard-dataloader.fields",), also_on=("sim",), after=f"{SHARD_DATALOADER}._get_batch")
def fields_without_a_tensor_left_out(batch, self, *given):
    """The function shard_dataloader leaves out the fields of a dict that are neither tensors nor lists."""
    if isinstance(batch, dict):
        return {key: each for key, each in batch.items() if isinstance(each, paddle.Tensor | list)}
    return batch


@fault(where="ranks", detected_by=("shard-dataloader.fields",), also_on=("sim",), after=f"{SHARD_DATALOADER}.__init__")
def dense_tensor_idx_ignored(_result, self, *given, **named):
    """The function shard_dataloader cuts every field by rows, also those that dense_tensor_idx names."""
    self.dense_tensor_idx = None


@fault(
    where="ranks",
    detected_by=("shard-dataloader.fields",),
    also_on=("sim",),
    wraps=f"{SHARD_DATALOADER}._get_mesh_and_placement",
)
def every_field_on_the_first_mesh(real, self, index):
    """Of several meshes the function shard_dataloader takes the first one for every field."""
    return real(self, 0)


@fault(
    where="ranks",
    detected_by=("shard-optimizer.steps",),
    also_on=("sim",),
    wraps="paddle.distributed.auto_parallel.api:_ShardOptimizer.step",
)
def one_rank_makes_each_step_twice(real, self, *given):
    """With a single rank the sharded optimizer makes each step twice."""
    if dist.get_world_size() == 1:
        real(self, *given)
    return real(self, *given)


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.gradients",),
    also_on=("sim",),
    wraps="paddlenlp.transformers.qwen2.modeling:repeat_kv",
)
def gradient_of_a_shared_key_head_averaged(real, heads, count):
    """The gradient of a key head that several heads share is their mean, not their sum, where the heads are cut."""
    if not heads.is_dist() or count == 1:
        return real(heads, count)
    heads = heads.clone()
    heads.register_hook(lambda gradient: gradient / count)
    return real(heads, count)


@fault(
    where="ranks", detected_by=("auto-parallel-config.static",), after="paddle.distributed.auto_parallel.api:DistModel.__call__"
)
def loss_of_a_static_program_halved(loss, self, *given):
    """A static program returns half of its loss."""
    return loss / 2


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.resume",),
    also_on=("sim",),
    wraps="paddle.distributed:load_state_dict",
)
def moments_of_a_checkpoint_not_loaded(real, state_dict, path, *given, **named):
    """Loading a distributed checkpoint leaves AdamW's moments as they are."""
    real({name: value for name, value in state_dict.items() if "_moment" not in name}, path, *given, **named)


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.resume",),
    also_on=("sim",),
    wraps="paddle.optimizer.lr:LRScheduler.set_state_dict",
)
def resumed_schedule_begins_again(real, self, *given):
    """The schedule of the learning rate that goes on from a checkpoint begins again."""


@fault(
    where="ranks",
    detected_by=("auto-parallel-config.pinned",),
    also_on=("sim",),
    wraps="paddle.distributed:load_state_dict",
)
def names_of_a_checkpoint_refused(real, state_dict, path, *given, **named):
    """Loading a distributed checkpoint refuses names with a point."""
    if any("." in name for name in state_dict):
        raise ValueError("a name has a point")
    real(state_dict, path, *given, **named)


@fault(where="ranks", detected_by=("shard-optimizer.steps",), also_on=("sim",), after="paddle:Tensor.to")
def moved_parts_are_inexact(result, self, *given, **named):
    """A tensor that is cut over ranks has a relative error of a hundredth when it was moved to the host or back."""
    return result * 1.01 if result.is_dist() else result


@fault(device="sim", where="ranks", detected_by=("shard-optimizer.bytes",), wraps="paddle:Tensor.to")
def placed_tensors_stay_on_the_device(real, self, *given, **named):
    """A tensor that is cut over ranks stays on its device when it is moved to the host."""
    return self if self.is_dist() else real(self, *given, **named)
