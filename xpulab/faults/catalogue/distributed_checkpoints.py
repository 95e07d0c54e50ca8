"""Faults that 08_distributed_checkpoints must see."""

from __future__ import annotations

import textwrap

from xpulab.faults.fault import Fault, in_every_rank

NOTEBOOK = "08_distributed_checkpoints"


def once_there(name: str, breaks: str) -> str:
    """`breaks` for what the notebook itself defines: runs after the first cell after which `name` is there."""
    body = textwrap.indent(textwrap.dedent(breaks).strip(), " " * 4)
    return f"""
shell = get_ipython()
def change(done):
    cells = shell.user_ns
    if {name!r} not in cells:
        return
    shell.events.unregister("post_run_cell", change)
{body}
shell.events.register("post_run_cell", change)
"""


FAULTS = (
    Fault(
        name="parts-of-another-rank",
        what="the first two ranks load each other's parts",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.load_state_dict
            def exchanged(state, path, *given, **named):
                real(state, path, *given, **named)
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
        """),
        seen_by=("distributed-checkpoint.reshard", "distributed-checkpoint.aoa", "distributed-checkpoint.damage"),
    ),
    Fault(
        name="moments-not-saved",
        what="ranks save the optimizer's moments as zeros",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import paddle, paddle.distributed as dist
            real = dist.save_state_dict
            def without(state, path, *given, **named):
                for name, each in state.items():
                    if "moment" in name:
                        each.local_tensor.zero_()
                return real(state, path, *given, **named)
            dist.save_state_dict = without
        """),
        seen_by=("distributed-checkpoint.reshard", "distributed-checkpoint.resume", "distributed-checkpoint.merge"),
    ),
    Fault(
        name="powers-not-loaded",
        what="AdamW's powers of beta stay as they were when a checkpoint is loaded",
        notebook=NOTEBOOK,
        breaks="""
import paddle.distributed as dist
real = dist.load_state_dict
def without(state, path, *given, **named):
    return real({name: each for name, each in state.items() if "_pow_acc" not in name}, path, *given, **named)
dist.load_state_dict = without
""",
        seen_by=("distributed-checkpoint.resume",),
    ),
    Fault(
        name="missing-part-read-as-zeros",
        what="a part whose file is missing is read as zeros",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import os, paddle.distributed as dist
            real = dist.load_state_dict
            def lenient(state, path, *given, **named):
                if "intact" in path or "damage-" not in path or os.path.exists(os.path.join(path, "1_0.distcp")):
                    return real(state, path, *given, **named)
                for each in state.values():
                    each.local_tensor.zero_()
            dist.load_state_dict = lenient
        """),
        seen_by=("distributed-checkpoint.damage-plain",),
    ),
    Fault(
        name="one-tensor-untouched",
        what="loading leaves one tensor as it was",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import paddle.distributed as dist
            real = dist.load_state_dict
            def forgetful(state, path, *given, **named):
                asked = {name: each for name, each in state.items() if name not in ("narrow.bias", "Shard(1)", "k")}
                return real(asked or state, path, *given, **named)
            dist.load_state_dict = forgetful
        """),
        seen_by=("distributed-checkpoint.reshard", "distributed-checkpoint.one-rank-local", "distributed-checkpoint.aoa"),
    ),
    Fault(
        name="aoa-transpose-ignored",
        what="a transposed tensor is filled in the order in which it lies in the file",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import paddle
            paddle.transpose = lambda x, perm: x.reshape([x.shape[each] for each in perm])
        """),
        seen_by=("distributed-checkpoint.aoa",),
    ),
    Fault(
        name="aoa-cast-ignored",
        what="a tensor that is to be cast keeps its type",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import paddle
            paddle.cast = lambda x, dtype: x
        """),
        seen_by=("distributed-checkpoint.aoa",),
    ),
    Fault(
        name="aoa-halves-exchanged",
        what="a split gives its parts in reverse order",
        notebook=NOTEBOOK,
        breaks="""
from paddle.distributed.flex_checkpoint.aoa.aoa_engine import AOAEngine
split = AOAEngine.split
AOAEngine.split = lambda self, tensor, axis, sizes: split(self, tensor, axis, sizes)[::-1]
""",
        seen_by=("distributed-checkpoint.merge-way-round",),
    ),
    Fault(
        name="merge-drops-the-offloaded",
        what="merging with offload writes zeros",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import sys, paddle
            import paddle.distributed.flex_checkpoint.dcp.load_state_dict as module
            module = sys.modules["paddle.distributed.flex_checkpoint.dcp.load_state_dict"]
            real = module.load_state_dict
            def load(state, *given, offload=False, **named):
                real(state, *given, offload=offload, **named)
                for each in state.values() if offload else ():
                    each.local_tensor.zero_()
            module.load_state_dict = load
        """),
        seen_by=("distributed-checkpoint.merge",),
    ),
    Fault(
        name="every-rank-reads-every-file",
        what="while it loads, each rank holds the files of all others, too",
        notebook=NOTEBOOK,
        breaks=in_every_rank("""
            import pathlib, paddle, paddle.distributed as dist
            real = dist.load_state_dict
            def greedy(state, path, *given, **named):
                kept = [paddle.load(str(file)) for file in pathlib.Path(path).glob("*.distcp") if "heavy" in path]
                return real(state, path, *given, **named)
            dist.load_state_dict = greedy
        """),
        seen_by=("load-memory.share",),
    ),
    Fault(
        name="digests-of-nothing",
        what="the seal's digests are the same whatever a file holds",
        notebook=NOTEBOOK,
        breaks=once_there(
            "digest",
            """
            cells["digest"].__code__ = (lambda file: "0" * 64).__code__
            """,
        ),
        seen_by=("distributed-checkpoint.damage",),
    ),
    Fault(
        name="stale-average",
        what="the EMA buffer is written as it was before the step was added",
        notebook=NOTEBOOK,
        breaks=once_there(
            "close",
            """
            saver = cells["ZeroCostSaver"]
            write, average = saver.write_one, saver.average
            saver.average = lambda self, buffer: None
            def late(self, step, buffer):
                write(self, step, buffer)
                average(self, buffer)
            saver.write_one = late
            """,
        ),
        seen_by=("zero-cost-checkpoint.ema",),
    ),
    Fault(
        name="marked-before-written",
        what="the mark of completion is written before the data",
        notebook=NOTEBOOK,
        breaks=once_there(
            "close",
            """
            seal = cells["seal"]
            def hasty(self, step, buffer):
                path = self.to / f"step-{step}"
                path.mkdir(parents=True)
                seal(path)
                self.write(buffer, path / "state.safetensors")
                self.write(self.ema, path / "ema.safetensors")
            cells["ZeroCostSaver"].write_one = hasty
            """,
        ),
        seen_by=("zero-cost-checkpoint.goes-on", "zero-cost-checkpoint.marker"),
    ),
    Fault(
        name="one-buffer-for-two",
        what="a copy goes into the buffer that is still being written",
        notebook=NOTEBOOK,
        breaks=once_there(
            "close",
            """
            saver = cells["ZeroCostSaver"]
            begin = saver.begin
            def begin_in_one(self, step):
                begin(self, step)
                self.only = self.__dict__.get("only", self.buffer)
                self.buffer = self.only
            saver.begin = begin_in_one
            """,
        ),
        seen_by=("zero-cost-checkpoint.plain-save",),
    ),
    Fault(
        name="copied-after-the-step",
        what="what is left of a copy is copied after the optimizer has changed the weights",
        notebook=NOTEBOOK,
        breaks=once_there(
            "close",
            """
            saver = cells["ZeroCostSaver"]
            finish, begin = saver.finish, saver.begin
            step = cells["paddle"].optimizer.AdamW.step
            waiting = []
            saver.finish = lambda self: waiting.append(self)
            def late(optimizer):
                step(optimizer)
                while waiting:
                    finish(waiting.pop())
            cells["paddle"].optimizer.AdamW.step = late
            """,
        ),
        seen_by=("zero-cost-checkpoint.plain-save",),
    ),
    Fault(
        name="errors-stay-in-the-background",
        what="the writer's errors are not told",
        notebook=NOTEBOOK,
        breaks=once_there(
            "close",
            """
            cells["ZeroCostSaver"].failure = property(lambda self: None, lambda self, error: None)
            """,
        ),
        seen_by=("zero-cost-checkpoint.error-is-told",),
    ),
    Fault(
        name="newest-by-its-name",
        what="step-8 counts as newer than step-10",
        notebook=NOTEBOOK,
        breaks=once_there(
            "newest",
            """
            damage = cells["damage"]
            def by_name(to):
                complete = [path for path in to.glob("step-*") if not damage(path)]
                return max(complete, key=lambda path: path.name, default=None)
            cells["newest"] = by_name
            """,
        ),
        seen_by=("zero-cost-checkpoint.newest",),
    ),
)
