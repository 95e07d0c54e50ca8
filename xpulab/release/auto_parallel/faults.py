"""The faults of this notebook."""

from __future__ import annotations

import contextlib
from unittest import mock

from xpulab.chapters.pipeline.faults import STAGE
from xpulab.chapters.shared.fault import dist, fault, paddle

API = "paddle.distributed.auto_parallel.api"
SAMPLER = "paddle.io:DistributedBatchSampler"
SHARD_DATALOADER = f"{API}:ShardDataloader"


@fault("auto-parallel-config.options", where="ranks", wraps="paddle.distributed.parallel:sync_params_buffers")
def weights_of_the_first_rank_not_sent(_real, model, *given, **named):
    """Under DataParallel each rank starts with its own weights and buffers."""


@fault("shard-dataloader.samplers", after=f"{SAMPLER}.__len__")
def number_of_batches_rounded_down(result, self):
    """The function len() of a sampler leaves out the last, smaller batch."""
    return self.num_samples // self.batch_size


@fault("auto-parallel-config.refusals", where="ranks", wraps="paddlenlp.trainer.training_args:TrainingArguments.__post_init__")
def illegal_options_accepted(real, self):
    """PaddleNLP accepts the illegal combinations of options that it refuses with a ValueError or an assertion."""
    with contextlib.suppress(ValueError, AssertionError):
        real(self)


@fault("shard-dataloader.declared", where="ranks", after=f"{API}:ShardDataloader._get_mesh_and_placement", lanes=("sim",))
def batches_declared_whole(result, self, index):
    """The function shard_dataloader declares that every rank holds the whole batch."""
    mesh, placements = result
    return mesh, [dist.Replicate() for _ in placements]


@fault("pipeline.options", where="ranks", wraps=f"{STAGE}.get_bwd_send_ops")
def gradient_stops_at_a_frozen_stage(real, self, *given):
    """A stage whose weights are frozen sends zeros to the stage before it."""
    if all(weight.stop_gradient for weight in self.sublayer.parameters()):
        for chunk, gradients in self.bwd_cache.items():
            self.bwd_cache[chunk] = tuple(None if each is None else paddle.zeros_like(each) for each in gradients)
    return real(self, *given)


@fault("pipeline.several-tensors", where="ranks", wraps=f"{STAGE}.get_bwd_send_ops", lanes=("sim",))
def gradient_of_the_second_tensor_lost(real, self, *given):
    """Of the gradients of several tensors that a stage received only the first one is sent back, the others are zeros."""
    for chunk, gradients in self.bwd_cache.items():
        self.bwd_cache[chunk] = gradients[:1] + tuple(
            None if each is None else paddle.zeros_like(each) for each in gradients[1:]
        )
    return real(self, *given)


@fault("shard-dataloader.rows", where="ranks", wraps=f"{SHARD_DATALOADER}.__init__")
def rows_of_the_second_rank_on_every_rank(real, self, *args, **kwargs):
    """The function shard_dataloader gives every rank the rows of the second rank."""
    with mock.patch("paddle.distributed.get_rank", lambda *_: 1):
        real(self, *args, **kwargs)


@fault("collectives.objects", where="ranks", wraps="paddle.distributed:broadcast_object_list")
def every_object_of_a_list_is_the_first(real, objects, *args, **kwargs):
    """A list of objects arrives with the first of them in each place."""
    real(objects, *args, **kwargs)
    objects[:] = objects[:1] * len(objects)


@fault("collectives.shared-memory", where="ranks", after="paddle.incubate.multiprocessing.reductions:_rebuild_tensor")
def shared_memory_is_opened_empty(tensor, *given):
    """A tensor that another process opens is zeros."""
    return paddle.zeros_like(tensor)
