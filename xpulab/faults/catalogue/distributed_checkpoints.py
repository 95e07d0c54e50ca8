"""Faults that 13_distributed_checkpoints must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells, when_defined


@fault(
    "13_distributed_checkpoints",
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.aoa", "distributed-checkpoint.damage"),
)
def parts_of_another_rank_loaded() -> None:
    """Each of the first two ranks loads the parts of the other one."""
    import paddle.distributed as dist

    real = dist.load_state_dict

    def exchanged(state, path, *args, **kwargs):
        real(state, path, *args, **kwargs)
        if dist.get_world_size() < 2 or not all(isinstance(each, dist.ShardedWeight) for each in state.values()):
            return
        held = []
        dist.all_gather_object(held, {name: each.local_tensor.numpy() for name, each in state.items()})
        if dist.get_rank() < 2:
            for name, each in state.items():
                other = held[1 - dist.get_rank()][name]
                if list(other.shape) == list(each.local_tensor.shape):
                    each.local_tensor.set_value(other)

    dist.load_state_dict = exchanged


@fault(
    "13_distributed_checkpoints",
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.resume", "distributed-checkpoint.merge"),
)
def moments_not_saved() -> None:
    """Ranks save the optimizer's moments as zeros."""
    import paddle.distributed as dist

    real = dist.save_state_dict

    def save_without(state, path, *args, **kwargs):
        for name, each in state.items():
            if "moment" in name:
                each.local_tensor.zero_()
        return real(state, path, *args, **kwargs)

    dist.save_state_dict = save_without


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.resume",), also_on=("sim",))
def powers_not_loaded() -> None:
    """Loading a checkpoint leaves the powers of beta of AdamW as they were."""
    import paddle.distributed as dist

    real = dist.load_state_dict

    def without(state, path, *args, **kwargs):
        return real({name: each for name, each in state.items() if "_pow_acc" not in name}, path, *args, **kwargs)

    dist.load_state_dict = without


@fault("13_distributed_checkpoints", where="ranks", detected_by=("distributed-checkpoint.damage-plain",))
def missing_part_read_as_zeros() -> None:
    """A part whose file is missing is read as zeros."""
    import os

    import paddle.distributed as dist

    real = dist.load_state_dict

    def lenient(state, path, *args, **kwargs):
        if "intact" in path or "damage-" not in path or os.path.exists(os.path.join(path, "1_0.distcp")):
            return real(state, path, *args, **kwargs)
        for each in state.values():
            each.local_tensor.zero_()

    dist.load_state_dict = lenient


@fault(
    "13_distributed_checkpoints",
    where="ranks",
    detected_by=("distributed-checkpoint.reshard", "distributed-checkpoint.one-rank-local", "distributed-checkpoint.aoa"),
)
def one_tensor_not_loaded() -> None:
    """Loading leaves one tensor as it was."""
    import paddle.distributed as dist

    real = dist.load_state_dict

    def forgetful(state, path, *args, **kwargs):
        asked = {name: each for name, each in state.items() if name not in ("narrow.bias", "Shard(1)", "k")}
        return real(asked or state, path, *args, **kwargs)

    dist.load_state_dict = forgetful


@fault("13_distributed_checkpoints", where="ranks", detected_by=("distributed-checkpoint.aoa",))
def aoa_transpose_ignored() -> None:
    """A tensor that must be transposed is reshaped instead."""
    import paddle

    paddle.transpose = lambda x, perm: x.reshape([x.shape[each] for each in perm])


@fault("13_distributed_checkpoints", where="ranks", detected_by=("distributed-checkpoint.aoa",))
def aoa_cast_ignored() -> None:
    """A tensor that must be cast keeps its type."""
    import paddle

    paddle.cast = lambda x, dtype: x


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.merge-way-round",))
def aoa_split_in_reverse_order() -> None:
    """A split returns its parts in reverse order."""
    from paddle.distributed.flex_checkpoint.aoa.aoa_engine import AOAEngine

    split = AOAEngine.split
    AOAEngine.split = lambda self, tensor, axis, sizes: split(self, tensor, axis, sizes)[::-1]


@fault("13_distributed_checkpoints", where="ranks", detected_by=("distributed-checkpoint.merge",))
def offloaded_merge_writes_zeros() -> None:
    """Merging with offload writes zeros."""
    import importlib

    module = importlib.import_module("paddle.distributed.flex_checkpoint.dcp.load_state_dict")
    real = module.load_state_dict

    def load(state, *args, offload=False, **kwargs):
        real(state, *args, offload=offload, **kwargs)
        for each in state.values() if offload else ():
            each.local_tensor.zero_()

    module.load_state_dict = load


@fault("13_distributed_checkpoints", where="ranks", detected_by=("load-memory.share",), also_on=("sim",))
def every_rank_reads_every_file() -> None:
    """While a rank loads, it holds the files of all ranks."""
    import pathlib

    import paddle
    import paddle.distributed as dist

    real = dist.load_state_dict

    def greedy(state, path, *args, **kwargs):
        _held = [paddle.load(str(file)) for file in pathlib.Path(path).glob("*.distcp") if "heavy" in path]
        return real(state, path, *args, **kwargs)

    dist.load_state_dict = greedy


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.damage",))
def digest_ignores_contents() -> None:
    """The digests in the manifest are the same for every file."""

    def change(cells):
        cells["digest"].__code__ = (lambda file: "0" * 64).__code__

    when_defined("digest", change)


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.stride-flag", "distributed-checkpoint.careful"))
def flag_not_set_while_loading() -> None:
    """The check before loading leaves FLAGS_use_stride_kernel as it is."""
    replace_in_cells('paddle.set_flags({"FLAGS_use_stride_kernel": True})', "pass")


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.careful",))
def types_not_compared() -> None:
    """The check before loading does not compare the types of tensors."""
    replace_in_cells('f"{dtype} {list(shape)}"', 'f"paddle.{there[0].dtype if there else 0} {list(shape)}"')


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.damage",))
def ranks_do_not_agree() -> None:
    """A rank that finds damage does not report it to the others."""
    replace_in_cells("dist.all_gather_object(of_ranks, found)", "of_ranks.append(found)")


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.take-home",))
def script_with_another_digest() -> None:
    """The script to take home computes another digest than the lesson."""
    import tempfile
    from pathlib import Path

    from xpulab.notebook import take_home

    real = take_home.script_path

    def other(script):
        path = Path(tempfile.mkdtemp()) / f"{script}.py"
        path.write_text(real(script).read_text().replace("hashlib.sha256", "hashlib.blake2b"))
        return path

    take_home.script_path = other
