"""The faults of this chapter."""

from __future__ import annotations

import os
import pathlib

from xpulab.chapters.shared.fault import CELLS, FILES, dist, fault, paddle, replace_in_cells, replace_in_file

CHECKPOINT = "paddle.distributed.flex_checkpoint"


@fault(
    "distributed-checkpoint.state", "distributed-checkpoint.exercise-tensors", wraps="paddle.optimizer:AdamW.sharded_state_dict"
)
def second_moments_not_listed(real, self, *given, **named):
    """The optimizer's sharded state does not list its second moments."""
    return {name: each for name, each in real(self, *given, **named).items() if "moment2" not in name}


@fault(
    "distributed-checkpoint.smoke-reshard",
    "distributed-checkpoint.exercise-sources",
    where="everywhere",
    smoke=("distributed-checkpoint.smoke-reshard",),
    after=f"{CHECKPOINT}.dcp.resharder:compute_overlap",
)
def last_row_of_a_part_not_loaded(result, *given):
    """The last row of each part in a file is not loaded."""
    mine, stored, (rows, *others) = result
    return mine, stored, [max(rows - 1, 1), *others]


@fault(
    "distributed-checkpoint.reshard",
    "distributed-checkpoint.damage",
    lanes=("cpu", "sim"),
    where="ranks",
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


@fault("distributed-checkpoint.resume", wraps="paddle.distributed:load_state_dict")
def powers_not_loaded(real, state, path, *args, **kwargs):
    """Loading a checkpoint leaves the powers of beta of AdamW as they were."""
    return real({name: each for name, each in state.items() if "_pow_acc" not in name}, path, *args, **kwargs)


@fault("distributed-checkpoint.damage-plain", where="ranks", wraps="paddle.distributed:load_state_dict")
def missing_part_read_as_zeros(real, state, path, *args, **kwargs):
    """A part whose file is missing is read as zeros."""
    if "intact" in path or "damage-" not in path or os.path.exists(os.path.join(path, "1_0.distcp")):
        return real(state, path, *args, **kwargs)
    for each in state.values():
        each.local_tensor.zero_()


@fault("load-memory.share", where="ranks", wraps="paddle.distributed:load_state_dict")
def every_rank_reads_every_file(real, state, path, *args, **kwargs):
    """While a rank loads, it holds the files of all ranks."""
    _held = [paddle.load(str(file)) for file in pathlib.Path(path).glob("*.distcp") if "heavy" in path]
    return real(state, path, *args, **kwargs)


@fault("load-memory.offload", lanes=("sim",), where="ranks", wraps="paddle.distributed:load_state_dict")
def offload_while_loading_ignored(real, state, path, *args, offload=False, **kwargs):
    """Loading with offload=True reads the files into the memory of the card."""
    return real(state, path, *args, **kwargs)


@fault("distributed-checkpoint.stride-flag", "distributed-checkpoint.careful", breaks=CELLS)
def flag_not_set_while_loading() -> None:
    """The check before loading leaves FLAGS_use_stride_kernel as it is."""
    replace_in_cells('paddle.set_flags({"FLAGS_use_stride_kernel": True})', "pass")


@fault("distributed-checkpoint.take-home", breaks=FILES)
def script_with_another_digest() -> None:
    """The script to take home computes another digest than the lesson."""
    replace_in_file("data/take_home/resume_anywhere.py", "hashlib.sha256", "hashlib.blake2b")
