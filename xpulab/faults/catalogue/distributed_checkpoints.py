"""Faults that 13_distributed_checkpoints must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, when_defined


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


@fault("13_distributed_checkpoints", detected_by=("distributed-checkpoint.resume",))
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


@fault("13_distributed_checkpoints", where="ranks", detected_by=("load-memory.share",))
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


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.ema",))
def average_written_too_early() -> None:
    """The EMA buffer is written before the weights of its step are added."""

    def change(cells):
        saver = cells["ZeroCostSaver"]
        write, average = saver.write_one, saver.average
        saver.average = lambda self, buffer: None

        def late(self, step, buffer):
            write(self, step, buffer)
            average(self, buffer)

        saver.write_one = late

    when_defined("close", change)


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.goes-on", "zero-cost-checkpoint.marker"))
def marked_before_written() -> None:
    """The completion marker is written before the data."""

    def change(cells):
        write_manifest = cells["write_manifest"]

        def marker_first(self, step, buffer):
            path = self.to / f"step-{step}"
            path.mkdir(parents=True)
            write_manifest(path)
            self.write(buffer, path / "state.safetensors")
            self.write(self.ema, path / "ema.safetensors")

        cells["ZeroCostSaver"].write_one = marker_first

    when_defined("close", change)


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.plain-save",))
def one_buffer_used_twice() -> None:
    """A copy goes into the buffer that is still being written."""

    def change(cells):
        saver = cells["ZeroCostSaver"]
        begin = saver.begin

        def begin_in_one(self, step):
            begin(self, step)
            self.only = self.__dict__.get("only", self.buffer)
            self.buffer = self.only

        saver.begin = begin_in_one

    when_defined("close", change)


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.plain-save",))
def copied_after_the_step() -> None:
    """The rest of a copy is made after the optimizer has changed the weights."""

    def change(cells):
        saver = cells["ZeroCostSaver"]
        finish = saver.finish
        step = cells["paddle"].optimizer.AdamW.step
        waiting = []
        saver.finish = lambda self: waiting.append(self)

        def late(optimizer):
            step(optimizer)
            while waiting:
                finish(waiting.pop())

        cells["paddle"].optimizer.AdamW.step = late

    when_defined("close", change)


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.error-is-told",))
def writer_errors_not_reported() -> None:
    """The errors of the writer are not reported."""

    def change(cells):
        cells["ZeroCostSaver"].failure = property(lambda self: None, lambda self, error: None)

    when_defined("close", change)


@fault("13_distributed_checkpoints", detected_by=("zero-cost-checkpoint.newest",))
def newest_by_name() -> None:
    """Step-8 counts as newer than step-10."""

    def change(cells):
        damage = cells["damage"]

        def by_name(to):
            complete = [path for path in to.glob("step-*") if not damage(path)]
            return max(complete, key=lambda path: path.name, default=None)

        cells["newest"] = by_name

    when_defined("newest", change)
