"""The faults of this chapter."""

from __future__ import annotations

import os
import pathlib

from xpulab.chapters.shared.fault import CELLS, FILES, dist, fault, paddle, replace_in_cells, replace_in_file

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
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.one-rank-local", "distributed-checkpoint.aoa"),
    wraps="paddle.distributed:load_state_dict",
)
def one_tensor_not_loaded(real, state, path, *args, **kwargs):
    """Loading leaves one tensor as it was."""
    asked = {name: each for name, each in state.items() if name not in ("narrow.bias", "Shard(1)", "k")}
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


@fault(where="ranks", detected_by=("distributed-checkpoint.types",), wraps="paddle:save")
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
    detected_by=("distributed-checkpoint.placements",),
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
