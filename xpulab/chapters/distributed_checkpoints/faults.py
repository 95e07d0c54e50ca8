"""The faults of this chapter."""

from __future__ import annotations

import os
import pathlib

from xpulab.chapters.shared.fault import CELLS, FILES, dist, fault, kept, paddle, replace_in_cells, replace_in_file

CHECKPOINT = "paddle.distributed.flex_checkpoint"


@fault(
    detected_by=("distributed-checkpoint.state", "distributed-checkpoint.exercise-tensors"),
    wraps="paddle.optimizer:AdamW.sharded_state_dict",
)
def second_moments_not_listed(real, self, *given, **named):
    """The optimizer's sharded state does not list its second moments."""
    return {name: each for name, each in real(self, *given, **named).items() if "moment2" not in name}


@fault(
    detected_by=("distributed-checkpoint.smoke-reshard",),
    smoke=("distributed-checkpoint.smoke-reshard",),
    after=f"{CHECKPOINT}.dcp.resharder:compute_overlap",
)
def last_row_of_a_part_not_loaded(result, *given):
    """The last row of each part in a file is not loaded."""
    mine, stored, (rows, *others) = result
    return mine, stored, [max(rows - 1, 1), *others]


@fault(
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.aoa", "distributed-checkpoint.damage"),
    after="paddle.distributed:load_state_dict",
)
def parts_of_another_rank_loaded(_result, state, path, *args, **kwargs):
    """Each of the first two ranks loads the parts of the other one."""
    if dist.get_world_size() < 2 or not all(isinstance(each, dist.ShardedWeight) for each in state.values()):
        return
    held = []
    dist.all_gather_object(held, {name: each.local_tensor.numpy() for name, each in state.items()})
    if dist.get_rank() < 2:
        for name, each in state.items():
            other = held[1 - dist.get_rank()][name]
            if list(other.shape) == list(each.local_tensor.shape):
                each.local_tensor.set_value(other)


@fault(
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.resume", "distributed-checkpoint.merge"),
    wraps="paddle.distributed:save_state_dict",
)
def moments_not_saved(real, state, path, *args, **kwargs):
    """Ranks save the optimizer's moments as zeros."""
    for name, each in state.items():
        if "moment" in name:
            each.local_tensor.zero_()
    return real(state, path, *args, **kwargs)


@fault(detected_by=("distributed-checkpoint.resume",), also_on=("sim",), wraps="paddle.distributed:load_state_dict")
def powers_not_loaded(real, state, path, *args, **kwargs):
    """Loading a checkpoint leaves the powers of beta of AdamW as they were."""
    return real({name: each for name, each in state.items() if "_pow_acc" not in name}, path, *args, **kwargs)


@fault(where="ranks", detected_by=("distributed-checkpoint.damage-plain",), wraps="paddle.distributed:load_state_dict")
def missing_part_read_as_zeros(real, state, path, *args, **kwargs):
    """A part whose file is missing is read as zeros."""
    if "intact" in path or "damage-" not in path or os.path.exists(os.path.join(path, "1_0.distcp")):
        return real(state, path, *args, **kwargs)
    for each in state.values():
        each.local_tensor.zero_()


@fault(
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.aoa"),
    wraps="paddle.distributed:load_state_dict",
)
def one_tensor_not_loaded(real, state, path, *args, **kwargs):
    """Loading leaves one tensor as it was."""
    asked = {name: each for name, each in state.items() if name not in ("narrow.bias", "k")}
    return real(asked or state, path, *args, **kwargs)


@fault(where="ranks", detected_by=("distributed-checkpoint.aoa", "distributed-checkpoint.aoa-twice"), wraps="paddle:transpose")
def aoa_transpose_ignored(_real, x, perm):
    """A tensor that must be transposed is reshaped instead."""
    return x.reshape([x.shape[each] for each in perm])


@fault(where="ranks", detected_by=("distributed-checkpoint.aoa",), wraps="paddle:cast")
def aoa_cast_ignored(_real, x, dtype):
    """A tensor that must be cast keeps its type."""
    return x


@fault(detected_by=("distributed-checkpoint.merge-aoa",), wraps=f"{CHECKPOINT}.aoa.aoa_engine:AOAEngine.split")
def aoa_split_in_reverse_order(split, self, tensor, axis, sizes):
    """A split returns its parts in reverse order."""
    return split(self, tensor, axis, sizes)[::-1]


@fault(where="ranks", detected_by=("distributed-checkpoint.contents",), wraps="paddle:save")
def doubles_saved_as_singles(real, values, *given, **named):
    """A checkpoint holds tensors of float64 with the precision of float32."""
    if isinstance(values, dict):
        double = {name: each for name, each in values.items() if each.dtype == paddle.float64}
        values = {**values, **{name: each.astype("float32").astype("float64") for name, each in double.items()}}
    return real(values, *given, **named)


@fault(where="ranks", detected_by=("distributed-checkpoint.workaround-needed",), wraps="paddle:Tensor.cuda")
def parts_stay_on_a_cpu(_real, tensor, *_given, **_named):
    """Paddle no longer moves what ranks of a CPU exchange to a card: the workaround is not needed."""
    return tensor


@fault(
    where="ranks",
    detected_by=("distributed-checkpoint.layouts",),
    after=f"{CHECKPOINT}.dcp.resharder:compute_local_shape_and_global_offset",
)
def placed_part_begins_at_zero(result, *given, **named):
    """While a tensor with a placement is loaded, every rank's part of it begins at 0."""
    shape, offset = result
    return shape, tuple(0 for _ in offset)


@fault(where="ranks", detected_by=("distributed-checkpoint.merge",), after=f"{CHECKPOINT}.dcp.load_state_dict:load_state_dict")
def offloaded_merge_writes_zeros(_result, state, *args, offload=False, **kwargs):
    """Merging with offload writes zeros."""
    for each in state.values() if offload else ():
        each.local_tensor.zero_()


@fault(where="ranks", detected_by=("distributed-checkpoint.aoa",), also_on=("sim",), after="paddle.distributed:load_state_dict")
def offloaded_load_with_statements_writes_zeros(_result, state, *args, offload=False, aoa_config=None, **kwargs):
    """Loading with statements and offload writes zeros."""
    for each in state.values() if offload and aoa_config else ():
        each.local_tensor.zero_()


@fault(
    detected_by=("distributed-checkpoint.merge-aoa",),
    also_on=("sim",),
    after=f"{CHECKPOINT}.dcp.load_state_dict:load_state_dict",
)
def offloaded_merge_with_statements_writes_zeros(_result, state, *args, offload=False, aoa_config=None, **kwargs):
    """Merging with statements and offload writes zeros."""
    for each in state.values() if offload and aoa_config else ():
        each.local_tensor.zero_()


@fault(device="sim", where="ranks", detected_by=("distributed-checkpoint.contents",), wraps="paddle:Tensor.copy_")
def loaded_values_do_not_come_back_to_the_host(real, self, other, *given):
    """While a card is in use, what other ranks send for a tensor in host memory reaches the card, and not that tensor."""
    return self if self.place.is_cpu_place() and not other.place.is_cpu_place() else real(self, other, *given)


@fault(where="ranks", detected_by=("load-memory.share",), also_on=("sim",), wraps="paddle.distributed:load_state_dict")
def every_rank_reads_every_file(real, state, path, *args, **kwargs):
    """While a rank loads, it holds the files of all ranks."""
    _held = [paddle.load(str(file)) for file in pathlib.Path(path).glob("*.distcp") if "heavy" in path]
    return real(state, path, *args, **kwargs)


@fault(device="sim", where="ranks", detected_by=("load-memory.offload",), wraps="paddle.distributed:load_state_dict")
def offload_while_loading_ignored(real, state, path, *args, offload=False, **kwargs):
    """Loading with offload=True reads the files into the memory of the card."""
    return real(state, path, *args, **kwargs)


@fault(detected_by=("distributed-checkpoint.damage",), breaks=CELLS)
def digest_ignores_contents() -> None:
    """The digests in the manifest are the same for every file."""
    replace_in_cells("hashlib.sha256(file.read_bytes()).hexdigest()", '"0" * 64')


@fault(detected_by=("distributed-checkpoint.in-silence",), wraps=f"{CHECKPOINT}.dcp.resharder:get_read_items")
def unknown_names_left_out(real, metadata, state, *given):
    """A tensor whose name the checkpoint does not have is left out, without an error."""
    stored = {name for each in metadata for name in each.state_dict_metadata}
    return real(metadata, {name: each for name, each in state.items() if name in stored}, *given)


@fault(detected_by=("distributed-checkpoint.stride-flag", "distributed-checkpoint.in-silence"), breaks=CELLS)
def flag_not_set_while_loading() -> None:
    """The check before loading leaves FLAGS_use_stride_kernel as it is."""
    replace_in_cells('paddle.set_flags({"FLAGS_use_stride_kernel": True})', "pass")


@fault(detected_by=("distributed-checkpoint.in-silence",), breaks=CELLS)
def types_not_compared() -> None:
    """The check before loading does not compare the types of tensors."""
    replace_in_cells('f"{dtype} {list(shape)}"', 'f"paddle.{there[0].dtype if there else 0} {list(shape)}"')


@fault(detected_by=("distributed-checkpoint.damage",), breaks=CELLS)
def ranks_do_not_agree() -> None:
    """A rank that finds damage does not report it to the others."""
    replace_in_cells("dist.all_gather_object(of_ranks, found)", "of_ranks.append(found)")


@fault(detected_by=("distributed-checkpoint.take-home",), breaks=FILES)
def script_with_another_digest() -> None:
    """The script to take home computes another digest than the lesson."""
    replace_in_file("data/take_home/resume_anywhere.py", "hashlib.sha256", "hashlib.blake2b")


LAYOUTS, CONTENTS, TRAINING = (
    ("distributed-checkpoint.layouts",),
    ("distributed-checkpoint.contents",),
    ("distributed-checkpoint.training",),
)
LOAD = "paddle.distributed:load_state_dict"


def _tensors(state):
    """By name the tensors of a state that are filled: of a ShardedWeight its part, of a placed tensor the local one."""
    parts = {name: getattr(each, "local_tensor", each) for name, each in state.items() if not isinstance(each, dict)}
    return {name: each._local_value() if each.is_dist() else each for name, each in parts.items()}


@fault(
    where="ranks",
    detected_by=(*LAYOUTS, "distributed-checkpoint.exercise-sources"),
    also_on=("sim",),
    after=f"{CHECKPOINT}.dcp.save_state_dict:extract_tensor_metadata",
)
def offsets_are_multiples_of_the_size(result, value):
    """A part is taken to begin at a multiple of its size, as if all parts had the same."""
    tensor, metadata = result
    sizes = zip(metadata.global_offset, metadata.local_shape, strict=True)
    offset = tuple(begin // max(size, 1) * size for begin, size in sizes)
    return tensor, type(metadata)(
        offset,
        metadata.local_shape,
        metadata.dtype,
        metadata.global_shape,
        metadata.is_flattened,
        metadata.flattened_range,
    )


@fault(where="ranks", detected_by=LAYOUTS, after=f"{CHECKPOINT}.dcp.save_state_dict:merge_state_dict_metadata")
def only_the_first_rank_lists_names(result, of_ranks):
    """What rank 0 has no part of is missing in the list of all slices."""
    return {name: each for name, each in result.items() if name in of_ranks[0]}


@fault(where="ranks", detected_by=LAYOUTS, after=f"{CHECKPOINT}.dcp.load_state_dict:flat_range_in_min_slice")
def stretch_begins_with_its_row(result, *_given):
    """A stretch of a flattened tensor is taken to begin where its first row begins."""
    begin, end = result
    return 0, end - begin


@fault(where="ranks", detected_by=LAYOUTS, after=f"{CHECKPOINT}.dcp.resharder:compute_overlap")
def blocks_begin_in_their_first_column(result, *_given):
    """Of a part that is cut along two axes the columns are read from the first one on."""
    mine, stored, sizes = result
    return (mine, [*stored[:-1], 0], sizes) if len(stored) > 1 and stored[0] and stored[-1] else result


@fault(where="ranks", detected_by=LAYOUTS, after=LOAD)
def only_rank_0_fills_whole_tensors(_result, state, *_given, **_named):
    """A tensor that every rank has whole is filled on rank 0 only."""
    for each in state.values():
        if dist.get_rank() and isinstance(each, paddle.Tensor) and not each.is_dist():
            each.set_value(paddle.zeros_like(each))


@fault(where="ranks", detected_by=LAYOUTS, after=f"{CHECKPOINT}.dcp.load_state_dict:get_rank_to_read_files")
def fourth_file_is_read_as_the_first(result, *_given):
    """The name of a file is compared up to three ranks: rank 3's is taken for that of rank 0."""
    return [file.replace("3_0.", "0_0.") for file in result]


@fault(where="ranks", detected_by=LAYOUTS, after=LOAD)
def layers_from_the_tenth_on_are_empty(_result, state, *_given, **_named):
    """Numbers of layers are read with one digit, and what has two is filled with zeros."""
    for name, tensor in _tensors(state).items():
        if any(len(each) > 1 and each.isdigit() for each in name.split(".")):
            tensor.set_value(paddle.zeros_like(tensor))


@fault(where="ranks", detected_by=(*LAYOUTS, *CONTENTS), after=LOAD)
def numbers_are_not_filled(_result, state, *_given, **_named):
    """A tensor without an axis is zero after loading."""
    for tensor in _tensors(state).values():
        if not tensor.ndim:
            tensor.set_value(paddle.zeros_like(tensor))


@fault(where="ranks", detected_by=(*LAYOUTS, *CONTENTS), after="paddle:load")
def middle_axis_is_reversed(result, *_given, **_named):
    """A tensor of three axes is read with its middle one in reverse order."""
    if not isinstance(result, dict):
        return result
    return {name: each[:, ::-1] if getattr(each, "ndim", 0) == 3 else each for name, each in result.items()}


@fault(where="ranks", detected_by=(*LAYOUTS, *CONTENTS), after="paddle:load")
def safetensors_are_read_by_columns(result, *_given, **named):
    """A matrix in safetensors is read as if it had been written column by column."""
    if not named.get("safetensors"):
        return result
    return {
        name: each.reshape(list(each.shape)[::-1]).T.reshape(each.shape) if each.ndim == 2 else each
        for name, each in result.items()
    }


@fault(where="ranks", detected_by=LAYOUTS, after=f"{CHECKPOINT}.dcp.save_state_dict:balanced_dedup_key_in_dict")
def of_copies_only_others_are_listed(result, *_given, save_replicas=False):
    """With save_replicas the list of all slices lacks the copies that loading reads."""
    return {index: file for index, file in result.items() if not save_replicas or index.replica_id != 0}


@fault(where="ranks", detected_by=CONTENTS, after="paddle:load")
def offloaded_doubles_are_singles(result, *_given, return_numpy=False, **_named):
    """What is read into host memory keeps the precision of float32."""
    if not return_numpy:
        return result
    return {
        name: each.astype("float32").astype(each.dtype) if each.dtype == "float64" else each for name, each in result.items()
    }


@fault(where="ranks", detected_by=CONTENTS, wraps="paddle:save")
def pieces_are_saved_from_the_beginning(real, values, *given, **named):
    """Of a piece of a longer tensor the beginning of the longer one is saved."""

    def first(tensor):
        return paddle.as_strided(tensor, tensor.shape, tensor.strides, 0) if getattr(tensor, "offset", 0) else tensor

    return real({name: first(each) for name, each in values.items()} if isinstance(values, dict) else values, *given, **named)


@fault(where="ranks", detected_by=CONTENTS, also_on=("sim",), after=f"{CHECKPOINT}.dcp.reshard_comm:get_target_tensor")
def transposes_are_filled_beside(result, *_given):
    """A tensor to fill whose memory is that of its transpose is copied first, and the copy is filled."""
    return result if result.is_contiguous() else result.clone()


@fault(where="ranks", detected_by=CONTENTS, wraps=LOAD)
def first_folder_is_read_again(real, state, path, *given, **named):
    """A process that has loaded from a folder reads the same one when it loads from its neighbour."""
    folder = os.path.dirname(path)
    first = next((each for each in kept if os.path.dirname(each) == folder), path)
    kept.append(first)
    return real(state, first, *given, **named)


@fault(where="ranks", detected_by=CONTENTS, wraps=LOAD)
def file_is_loaded_once(real, state, path, *given, **named):
    """A process loads from a folder once, and then takes its tensors to be filled."""
    if path not in kept:
        kept.append(path)
        real(state, path, *given, **named)


@fault(where="ranks", detected_by=CONTENTS, wraps=f"{CHECKPOINT}.dcp.metadata_manager:MetadataManager.set_metadata_list")
def metadata_of_a_failed_load_stay(real, self, metadata):
    """The metadata of a load that raised an error are those of the next load, too."""
    if not self.get_metadata_list():
        real(self, metadata)


@fault(where="ranks", detected_by=CONTENTS, wraps=f"{CHECKPOINT}.dcp.save_state_dict:flatten_state_dict")
def dicts_are_named_by_their_last_key(real, state):
    """Of a name in dicts in dicts the first key is left out."""
    flat, mapping = real(state)
    is_nested = any(isinstance(each, dict) for each in state.values())
    return ({name.partition(".")[2]: each for name, each in flat.items()} if is_nested else flat), mapping


@fault(where="ranks", detected_by=TRAINING, also_on=("sim",), after="paddle.optimizer:AdamW.sharded_state_dict")
def copies_in_float32_not_listed(result, *_given):
    """The optimizer's sharded state does not list the float32 copies of weights of 16 bits."""
    return {name: each for name, each in result.items() if not name.endswith(".w_0")}


@fault(where="ranks", detected_by=TRAINING, after="paddle.nn:Layer.sharded_state_dict")
def frozen_weights_are_not_listed(result, *_given, **_named):
    """A weight that does not train is left out of the sharded state of its model."""
    return {name: each for name, each in result.items() if not each.local_tensor.stop_gradient}


@fault(where="ranks", detected_by=TRAINING, after="paddle.optimizer:AdamW.sharded_state_dict")
def shared_weight_has_no_moments(result, self, weights):
    """A weight that has two names in the model has no moments in the optimizer's sharded state."""
    tensors = [each.local_tensor.name for each in weights.values()]
    shared = {name for name, each in weights.items() if tensors.count(each.local_tensor.name) > 1}
    return {name: each for name, each in result.items() if name.rpartition(".")[0] not in shared}


@fault(where="ranks", detected_by=TRAINING, after="paddle.optimizer:AdamW.sharded_state_dict")
def weights_are_counted_from_zero(result, self, *_given):
    """The optimizer takes weights for numbered from 0, and does not list the moments of those with larger numbers."""
    numbers = [
        int(weight.name.split(".")[0].split("_")[-1]) for weight in self._parameter_list if weight.name.startswith("layer_norm")
    ]
    return {name: each for name, each in result.items() if "norm" not in name or not numbers or min(numbers) == 0}


COLUMNS = "paddle.distributed.fleet.layers.mpu.mp_layers:ColumnParallelLinear.sharded_state_dict"


@fault(where="ranks", detected_by=TRAINING, also_on=("sim",), after=COLUMNS)
def biases_of_columns_are_taken_for_whole(result, *_given, **_named):
    """The bias of a layer that is cut by columns is listed as the same on every rank."""
    for name, each in result.items():
        if name.endswith("bias"):
            each.global_shape, each.global_offset = each.local_shape, (0,)
    return result


@fault(where="ranks", detected_by=TRAINING, after=LOAD)
def moments_from_the_tenth_layer_on_are_zero(_result, state, *_given, **_named):
    """Numbers of layers are read with one digit, and moments of layers with two are zero."""
    for name, tensor in _tensors(state).items():
        if "moment" in name and ".1" in name and ".1." not in name.replace("moment1_0", ""):
            tensor.set_value(paddle.zeros_like(tensor))
