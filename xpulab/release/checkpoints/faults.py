"""The faults of this notebook."""

from __future__ import annotations

import random
from pathlib import Path

from xpulab.chapters.checkpoints.faults import with_each_tensor
from xpulab.chapters.distributed_checkpoints.faults import CHECKPOINT
from xpulab.chapters.shared.fault import fault, paddle


@fault("resume.trainer", "resume.trainer-alone", wraps="paddlenlp.trainer:Trainer._load_rng_state")
def python_random_state_lost(real, self, checkpoint):
    """The state of Python's random number generator is not restored."""
    state = random.getstate()
    real(self, checkpoint)
    random.setstate(state)


@fault("resume.trainer", wraps="paddlenlp.trainer:Trainer.create_optimizer_and_scheduler")
def schedule_of_epochs_ends_earlier(create, self, num_training_steps):
    """A run that is resumed and given its length in epochs builds its schedule for fewer steps."""
    resumed = any(Path(self.args.output_dir).glob("checkpoint-*"))
    create(self, num_training_steps - (resumed and self.args.max_steps <= 0))


@fault("resume.trainer", after="paddlenlp.trainer.trainer_callback:TrainerState.load_from_json")
def best_checkpoint_is_forgotten(state, *given):
    """A resumed run takes its first checkpoint for the best one so far."""
    state.best_metric = state.best_model_checkpoint = None


@fault("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.read-by-others", wraps="paddle:save")
def bfloat16_as_float32(real, state, path, *rest, **named):
    """Bfloat16 is saved as float32."""
    wide = with_each_tensor(state, lambda each: each.astype("float32") if each.dtype == paddle.bfloat16 else each)
    return real(wide, path, *rest, **named)


@fault("checkpoint.special-values", after="paddle:load")
def float64_loses_bits(state, *given, **named):
    """Float64 comes back with the precision of float32."""
    return with_each_tensor(
        state, lambda each: each.astype("float32").astype(each.dtype) if each.dtype == paddle.float64 else each
    )


@fault("checkpoint.views", wraps="paddle:save")
def view_saved_without_its_strides(real, state, *given, **named):
    """The values of a view are read one after the other from where it begins in memory."""

    def in_memory_order(tensor):
        return tensor if tensor.is_contiguous() else paddle.as_strided(tensor, tensor.shape, [1], tensor.offset)

    return real(with_each_tensor(state, in_memory_order), *given, **named)


@fault("distributed-checkpoint.aoa", "distributed-checkpoint.aoa-twice", where="ranks", wraps="paddle:transpose")
def aoa_transpose_ignored(_real, x, perm):
    """A tensor that must be transposed is reshaped instead."""
    return x.reshape([x.shape[each] for each in perm])


@fault("distributed-checkpoint.training", where="ranks", after="paddle.optimizer:AdamW.sharded_state_dict")
def copies_in_float32_not_listed(result, *_given):
    """The optimizer's sharded state does not list the float32 copies of weights of 16 bits."""
    return {name: each for name, each in result.items() if not name.endswith(".w_0")}


@fault(
    "checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.nested", "checkpoint.written-by-others", after="paddle:load"
)
def values_of_one_byte_are_zero(state, *given, **named):
    """`paddle.load` returns zeros for types of one byte."""
    return with_each_tensor(state, lambda each: paddle.zeros(each.shape, each.dtype) if each.element_size() == 1 else each)


@fault("distributed-checkpoint.layouts", where="ranks", after="paddle.distributed:load_state_dict")
def numbers_are_not_filled(_result, state, *given, **named):
    """A tensor without an axis is zero after loading."""
    for each in state.values():
        tensor = getattr(each, "local_tensor", each)
        if not tensor.ndim:
            tensor.set_value(paddle.zeros_like(tensor))


@fault("distributed-checkpoint.merge", where="ranks", after=f"{CHECKPOINT}.dcp.load_state_dict:load_state_dict")
def offloaded_merge_writes_zeros(_result, state, *args, offload=False, **kwargs):
    """Merging with offload writes zeros."""
    for each in state.values() if offload else ():
        each.local_tensor.zero_()


@fault("distributed-checkpoint.in-silence", wraps=f"{CHECKPOINT}.dcp.resharder:get_read_items")
def unknown_names_left_out(real, metadata, state, *given):
    """A tensor whose name the checkpoint does not have is left out, without an error."""
    stored = {name for each in metadata for name in each.state_dict_metadata}
    return real(metadata, {name: each for name, each in state.items() if name in stored}, *given)
