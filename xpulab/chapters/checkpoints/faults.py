"""The faults of this chapter."""

from __future__ import annotations

import dataclasses
import os
import random
from pathlib import Path

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells, wrap


@fault(detected_by=("resume.exact",), also_on=("sim",), breaks=CELLS)
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    replace_in_cells("def _get_train_sampler(self):", "def _unused(self):")


@fault(
    where="everywhere",
    detected_by=("resume.stock", "resume.exact", "resume.trainer"),
    also_on=("sim",),
    wraps="paddlenlp.trainer:Trainer._load_rng_state",
)
def random_state_lost(_real, self, checkpoint):
    """The random state is not restored when a run is resumed."""


@fault(detected_by=("resume.exact",), breaks=CELLS)
def random_state_lost_between_epochs() -> None:
    """The random state is not restored when a run is resumed where an epoch ends."""
    replace_in_cells("self.trainer._load_rng_state(self.checkpoint)", "pass")


@fault(detected_by=("resume.trainer", "resume.trainer-alone"), wraps="paddlenlp.trainer:Trainer._load_rng_state")
def python_random_state_lost(real, self, checkpoint):
    """The state of Python's random number generator is not restored."""
    state = random.getstate()
    real(self, checkpoint)
    random.setstate(state)


@fault(
    where="everywhere",
    detected_by=("resume.exact", "resume.trainer"),
    wraps="paddle.optimizer:AdamW.set_state_dict",
)
def optimizer_not_restored(_real, self, state):
    """A resumed run begins with an empty optimizer state."""


@fault(
    where="everywhere",
    detected_by=("resume.exact", "resume.trainer", "resume.exercise-longer"),
    wraps=("paddle.optimizer.lr:LRScheduler.set_state_dict", "paddle.optimizer.lr:LRScheduler.set_dict"),
)
def schedule_not_restored(_real, self, state):
    """A resumed run begins with the learning rate of the first step."""


@fault(
    where="everywhere",
    detected_by=("resume.exact", "resume.trainer"),
    wraps="paddlenlp.trainer.trainer_callback:TrainerState.load_from_json",
)
def step_not_restored(_real, state, path):
    """A resumed run counts its steps from 0."""
    return state()


@fault(
    detected_by=(
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.nested",
        "checkpoint.exercise-values",
    ),
    after="paddle:load",
)
def load_drops_a_key(state, path, **configs):
    """`paddle.load` drops the last entry of a file."""
    if isinstance(state, dict) and len(state) > 1:
        state.pop(list(state)[-1])


@fault(
    detected_by=(
        "checkpoint.pdparams",
        "checkpoint.safetensors",
        "checkpoint.workarounds",
        "checkpoint.nested",
        "checkpoint.written-by-others",
    ),
    smoke=("checkpoint.smoke-values", "resume.smoke-step"),
    after="paddle:load",
)
def load_returns_zeros(state, *given, **named):
    """`paddle.load` returns zeros of the correct type and shape."""
    return _with_each_tensor(state, lambda tensor: paddle.zeros(tensor.shape, tensor.dtype))


@fault(
    where="everywhere",
    detected_by=("resume.exact", "resume.trainer"),
    wraps=("paddle.nn:Layer.set_state_dict", "paddle.nn:Layer.set_dict", "paddle.nn:Layer.load_dict"),
)
def weight_not_loaded(real, self, state, *rest, **named):
    """A resumed run keeps the initial values of its last layer."""
    return real(self, {name: value for name, value in state.items() if "lm_head" not in name}, *rest, **named)


@fault(
    where="ranks",
    detected_by=("resume.exact",),
    wraps="paddlenlp.trainer:Trainer._load_from_checkpoint",
)
def stale_checkpoint(real, self, resume_from_checkpoint=None):
    """Resuming loads the checkpoint before the requested one."""
    if resume_from_checkpoint:
        folder, step = resume_from_checkpoint.rsplit("-", 1)
        older = f"{folder}-{int(step) - 1}"
        resume_from_checkpoint = older if os.path.isdir(older) else resume_from_checkpoint
    return real(self, resume_from_checkpoint)


@fault(detected_by=("checkpoint.pdparams", "checkpoint.safetensors", "checkpoint.read-by-others"), wraps="paddle:save")
def bfloat16_as_float32(real, state, path, *rest, **named):
    """Bfloat16 is saved as float32."""
    wide = _with_each_tensor(state, lambda each: each.astype("float32") if each.dtype == paddle.bfloat16 else each)
    return real(wide, path, *rest, **named)


@fault(detected_by=("checkpoint.special-values",), after="paddle:load")
def float64_loses_bits(state, *given, **named):
    """Float64 comes back with the precision of float32."""
    return _with_each_tensor(
        state, lambda each: each.astype("float32").astype(each.dtype) if each.dtype == paddle.float64 else each
    )


@fault(detected_by=("checkpoint.special-values",), wraps="paddle:save")
def int64_loses_bits(real, state, *given, **named):
    """Only 32 bits of int64 are saved."""

    def narrow(tensor):
        return tensor.astype("int32").astype("int64") if tensor.dtype == paddle.int64 and tensor.size else tensor

    return real(_with_each_tensor(state, narrow), *given, **named)


@fault(detected_by=("checkpoint.flattened",), also_on=("sim",), breaks=CELLS)
def flattened_names_collide() -> None:
    """Flattening a nested state drops the names of the outer levels."""
    replace_in_cells('found |= flat(value, f"{prefix}{key}.")', "found |= flat(value)")


@fault(where="ranks", detected_by=("checkpoint.file-sizes",), wraps="paddle:save")
def second_moment_not_saved(real, state, path, *rest, **named):
    """A checkpoint holds only the first of the optimizer's two moments."""
    if isinstance(state, dict) and str(path).endswith(".pdopt"):
        state = {name: value for name, value in state.items() if "moment2" not in name}
    return real(state, path, *rest, **named)


@fault(detected_by=("checkpoint.not-a-tensor",), breaks=CELLS)
def flattening_drops_what_is_no_tensor() -> None:
    """Flattening drops the numbers and texts of a state without an error."""
    replace_in_cells('            raise TypeError(f"{prefix}{key} is a', '            (f"{prefix}{key} is a')


@fault(detected_by=("checkpoint.views",), wraps="paddle:save")
def view_saved_without_its_strides(real, state, *given, **named):
    """The values of a view are read one after the other from where it begins in memory."""

    def in_memory_order(tensor):
        return tensor if tensor.is_contiguous() else paddle.as_strided(tensor, tensor.shape, [1], tensor.offset)

    return real(_with_each_tensor(state, in_memory_order), *given, **named)


def _with_each_tensor(value, change):
    """A tensor, or a dict of such values, with change(tensor) in the place of each tensor; another value as it is."""
    if isinstance(value, dict):
        return {name: _with_each_tensor(each, change) for name, each in value.items()}
    return change(value) if isinstance(value, paddle.Tensor) else value


@fault(detected_by=("checkpoint.large",), after="paddle:load")
def last_block_not_read(state, *given, **named):
    """Of a large tensor the last block of 64 kB, which is read by itself, stays zero."""
    for value in state.values() if isinstance(state, dict) else ():
        if isinstance(value, paddle.Tensor) and value.ndim == 1 and value.size > 2**16:
            value[-(2**14) :] = 0


STATES = ("resume.states",)


def _restored(self, kind, value):
    """Replace what an optimizer has restored, of the accumulators whose names have this part, by a value."""
    for name, tensor in self._accumulators_holder.items():
        if kind in name:
            tensor.set_value(paddle.full_like(tensor, value))


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def velocities_are_not_restored(_result, self, state):
    """The velocities of Momentum begin at zero in a resumed run."""
    _restored(self, "_velocity_", 0.0)


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def largest_moments_are_not_restored(_result, self, state):
    """AdamW with amsgrad forgets the largest second moments."""
    _restored(self, "_moment2_max_", 0.0)


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def sums_of_squares_are_not_restored(_result, self, state):
    """The sums of squares of Adagrad begin at zero in a resumed run."""
    _restored(self, "_moment_", 0.0)


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def correction_of_the_first_steps_begins_again(_result, self, state):
    """Lamb forgets the powers of its decays, so its moments are corrected as in the first step."""
    if isinstance(self, paddle.optimizer.Lamb):
        _restored(self, "_beta1_pow_acc_", 0.9)


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def optimizer_state_is_restored_in_float32(_result, self, state):
    """The optimizer's state of float64 weights is rounded to float32 when it is restored."""
    for tensor in self._accumulators_holder.values():
        tensor.set_value(tensor.astype("float32").astype(tensor.dtype))


@fault(detected_by=STATES, wraps="paddle.optimizer:Optimizer.set_lr")
def rate_set_before_the_first_step_is_ignored(set_lr, self, rate):
    """A rate that is set by hand counts only after the optimizer has taken a step."""
    if self._accumulators:
        set_lr(self, rate)


@fault(detected_by=STATES, after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def bad_evaluations_are_counted_again(_result, self, state):
    """ReduceOnPlateau forgets how many evaluations were not better."""
    if hasattr(self, "num_bad_epochs"):
        self.num_bad_epochs = 0


@fault(detected_by=STATES, wraps="paddle.optimizer.lr:LinearWarmup.set_state_dict")
def warmup_begins_again(_real, self, state):
    """A resumed run begins with the warmup of the learning rate."""


@fault(detected_by=STATES, after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def step_0_is_taken_for_none(_result, self, state):
    """A schedule that was saved before the first step begins with its second."""
    if not self.last_epoch and not isinstance(self, paddle.optimizer.lr.ReduceOnPlateau):  # that one takes a metric
        self.step()


@fault(detected_by=STATES, after="paddle.optimizer:Optimizer.set_state_dict")
def loading_clears_the_gradients(_result, self, state):
    """Loading the optimizer's state clears the gradients that were accumulated and restored before."""
    self.clear_grad()


@fault(detected_by=STATES, wraps="paddle.nn:Layer.set_state_dict")
def layers_from_the_tenth_are_not_loaded(load, self, state, *given, **named):
    """Names of layers are read with one digit, so the layers from the tenth on keep their initial values."""
    own = self.state_dict()
    return load(self, {name: own[name] if ".1" in name and ".1." not in name else state[name] for name in state})


@fault(detected_by=STATES, wraps="paddle.optimizer:Optimizer.set_state_dict")
def names_are_counted_from_zero(restore, self, state):
    """The optimizer takes weights for numbered from 0, and forgets the state of those with larger numbers."""
    count = len(self._parameter_list)
    late = {weight.name for weight in self._parameter_list if int(weight.name.split(".")[0].split("_")[-1]) >= count}
    for name, tensor in state.items():
        if name.split(".")[0] in {each.split(".")[0] for each in late}:
            tensor.set_value(paddle.zeros_like(tensor))
    restore(self, state)


@fault(detected_by=STATES, wraps="paddle.optimizer:Optimizer.set_state_dict")
def state_of_other_names_is_left_out(restore, self, state):
    """An optimizer leaves out what it finds under no name of its own, and begins with an empty state."""
    own = tuple(f"{weight.name}_" for weight in self._parameter_list)
    known = {name: value for name, value in state.items() if name == "LR_Scheduler" or name.startswith(own)}
    restore(self, known if len(known) == len(state) else {name: state[name] for name in known if name == "LR_Scheduler"})


@fault(detected_by=STATES, wraps="paddle:set_rng_state")
def random_state_of_paddle_is_not_set(_real, *given, **named):
    """The random state that is set has no effect, so dropout draws other masks."""


@fault(detected_by=STATES, wraps="paddle.io:DistributedBatchSampler.set_epoch")
def epoch_of_the_sampler_is_not_set(_real, self, epoch):
    """The sampler ignores its epoch, so a resumed run has the order of the first one."""


@fault(detected_by=STATES, wraps="paddle:load")
def safetensors_lose_their_strides(load, path, **named):
    """A square matrix is transposed when it is read from safetensors."""
    state = load(path, **named)
    if not named.get("safetensors"):
        return state
    return {
        name: value.t().contiguous() if value.ndim == 2 and len(set(value.shape)) == 1 else value
        for name, value in state.items()
    }


@fault(detected_by=STATES, device="sim", after="paddle.amp:GradScaler.load_state_dict")
def scaler_counts_again(_result, self, state):
    """A scaler that is restored forgets how many steps were finite, and grows its factor later."""
    self._incr_count = 0


TRAINER = ("resume.trainer",)
STATE = "paddlenlp.trainer.trainer_callback:TrainerState"


@fault(detected_by=TRAINER, wraps="paddlenlp.utils.batch_sampler:DistributedBatchSampler.set_epoch")
def consumed_samples_are_not_skipped(set_epoch, self, epoch=0, consumed_samples=0):
    """PaddleNLP's sampler begins with the first sample, whatever was consumed."""
    set_epoch(self, epoch)


@fault(detected_by=TRAINER, wraps="paddle.io:DistributedBatchSampler.set_epoch")
def epochs_have_the_order_of_the_last_one(set_epoch, self, epoch):
    """A sampler whose epoch is set for the first time, as in a resumed run, is one epoch ahead."""
    set_epoch(self, epoch + (not self.epoch and epoch > 0))


@fault(detected_by=TRAINER, wraps=f"{STATE}.save_to_json")
def last_step_of_an_epoch_is_to_do_again(save, self, path):
    """In a checkpoint that is written where an epoch ends, the last step counts as not yet done."""
    ends = self.epoch == int(self.epoch)
    save(dataclasses.replace(self, global_step=self.global_step - 1) if ends else self, path)


@fault(detected_by=TRAINER, after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def cosine_begins_again(_result, self, state):
    """A cosine begins again in a resumed run; the other schedules go on."""
    if "cosine" in getattr(getattr(self, "lr_lambda", None), "__qualname__", ""):
        self.last_epoch = 0


@fault(detected_by=TRAINER, wraps="paddlenlp.trainer:Trainer._load_from_peft_checkpoint")
def adapter_of_a_checkpoint_is_not_loaded(_real, self, folder=None):
    """A resumed run keeps the initial values of its adapter."""


@fault(detected_by=TRAINER, after="paddlenlp.trainer.unified_checkpoint:UnifiedCheckpointHandler.load_unified_optimizer")
def unified_second_moments_are_zero(state, self, *given, **named):
    """A unified checkpoint gives the optimizer back without its second moments."""
    return {name: each * 0 if "moment2" in name else each for name, each in state.items()}


@fault(detected_by=TRAINER, wraps="paddlenlp.trainer.unified_checkpoint:UnifiedCheckpointHandler.load_unified_checkpoint")
def unified_layers_from_the_tenth_are_not_loaded(load, self, model, *given, **named):
    """Of a unified checkpoint the layers from the tenth on keep their initial values."""
    late = {name: each.clone() for name, each in model.state_dict().items() if ".layers.1" in name and ".layers.1." not in name}
    load(self, model, *given, **named)
    model.set_state_dict({**model.state_dict(), **late})


@fault(detected_by=TRAINER, after="paddlenlp.trainer:Trainer.evaluate")
def first_evaluation_draws_random_numbers(_result, self, *given, **named):
    """The first evaluation of a process draws random numbers, so a resumed run goes on with others."""
    if not hasattr(self, "evaluated"):
        self.evaluated = paddle.rand([1])


@fault(detected_by=TRAINER, after="paddlenlp.trainer:Trainer._sorted_checkpoints")
def earlier_checkpoints_are_not_counted(folders, self, *given, **named):
    """A resumed run does not delete the checkpoints that it found, though only the last one must stay."""
    begun = vars(self).setdefault("found", set(folders[:-1]))
    return [folder for folder in folders if folder not in begun]


@fault(detected_by=TRAINER, after=f"{STATE}.load_from_json")
def best_checkpoint_is_forgotten(state, *given):
    """A resumed run takes its first checkpoint for the best one so far."""
    state.best_metric = state.best_model_checkpoint = None


@fault(detected_by=TRAINER, wraps="paddle.io:DistributedBatchSampler.__len__")
def short_batch_is_not_counted(_real, self):
    """The length of an epoch leaves out its short batch, so the epoch is counted wrongly."""
    return self.num_samples // self.batch_size


@fault(detected_by=TRAINER, wraps=f"{STATE}.save_to_json")
def steps_are_counted_in_batches(save, self, path):
    """With accumulated gradients a checkpoint counts batches, and not steps."""
    of_a_step = self.consumed_samples // 2 // max(self.global_step, 1)
    save(dataclasses.replace(self, global_step=self.global_step * of_a_step), path)


@fault(detected_by=TRAINER, wraps="paddlenlp.trainer:Trainer.create_optimizer_and_scheduler")
def schedule_of_epochs_ends_earlier(create, self, num_training_steps):
    """A run that is resumed and given its length in epochs builds its schedule for the steps that are left."""
    resumed = Path(self.args.output_dir).is_dir() and any(Path(self.args.output_dir).glob("checkpoint-*"))
    create(self, num_training_steps - (resumed and self.args.max_steps <= 0))


@fault(detected_by=TRAINER, wraps="paddlenlp.trainer:Trainer._inner_training_loop")
def ignore_data_skip_is_ignored(loop, self, args, *given):
    """Data that were read are skipped although ignore_data_skip is set."""
    args.ignore_data_skip = False
    return loop(self, args, *given)


@fault(detected_by=TRAINER, breaks=(f"{STATE}.save_to_json", f"{STATE}.load_from_json"))
def second_interruption_loses_the_log() -> None:
    """A run that was resumed saves only the log since then, so the run that is resumed from it lacks the beginning."""

    def load(real, kind, path):
        state = real(kind, path)
        state.loaded = len(state.log_history)
        return state

    def save(real, state, path):
        real(dataclasses.replace(state, log_history=state.log_history[getattr(state, "loaded", 0) :]), path)

    wrap(f"{STATE}.load_from_json", load)
    wrap(f"{STATE}.save_to_json", save)


@fault(detected_by=TRAINER, after=f"{STATE}.load_from_json")
def log_is_lost(state, *given):
    """A resumed run begins with an empty log."""
    state.log_history = []


@fault(detected_by=("checkpoint.arrays",), also_on=("sim",), wraps="paddle:load")
def arrays_of_half_precision_are_widened(load, path, **options):
    """paddle.load(return_numpy=True) gives arrays of float32 for tensors of float16."""
    found = load(path, **options)
    if not (options.get("return_numpy") and isinstance(found, dict)):
        return found
    return {name: each.astype("float32") if str(each.dtype) == "float16" else each for name, each in found.items()}
