"""The faults of this chapter."""

from __future__ import annotations

import os
import random

from xpulab.chapters.shared.fault import CELLS, fault, paddle, replace_in_cells


@fault(detected_by=("resume.exact", "resume.data-order", "resume.losses", "resume.weights"), also_on=("sim",), breaks=CELLS)
def sampler_restarts() -> None:
    """A resumed run sees the data from the beginning again."""
    replace_in_cells("def _get_train_sampler(self):", "def _unused(self):")


@fault(
    where="ranks",
    detected_by=("resume.stock", "resume.random-numbers", "resume.next-random-numbers", "resume.weights"),
    wraps="paddlenlp.trainer:Trainer._load_rng_state",
)
def random_state_lost(_real, self, checkpoint):
    """The random state is not restored when a run is resumed."""


@fault(detected_by=("resume.exact", "resume.random-numbers", "resume.weights"), breaks=CELLS)
def random_state_lost_between_epochs() -> None:
    """The random state is not restored when a run is resumed where an epoch ends."""
    replace_in_cells("self.trainer._load_rng_state(self.checkpoint)", "pass")


@fault(
    where="ranks",
    detected_by=("resume.random-numbers", "resume.next-random-numbers"),
    wraps="paddlenlp.trainer:Trainer._load_rng_state",
)
def python_random_state_lost(real, self, checkpoint):
    """The state of Python's random number generator is not restored."""
    state = random.getstate()
    real(self, checkpoint)
    random.setstate(state)


@fault(
    where="ranks",
    detected_by=("resume.moments", "resume.weights", "resume.losses", "resume.accumulation"),
    wraps="paddle.optimizer:AdamW.set_state_dict",
)
def optimizer_not_restored(_real, self, state):
    """A resumed run begins with an empty optimizer state."""


@fault(
    where="ranks",
    detected_by=("resume.weights", "resume.losses"),
    wraps=("paddle.optimizer.lr:LRScheduler.set_state_dict", "paddle.optimizer.lr:LRScheduler.set_dict"),
)
def schedule_not_restored(_real, self, state):
    """A resumed run begins with the learning rate of the first step."""


@fault(
    where="ranks",
    detected_by=("resume.begins-where-it-stopped",),
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
        "resume.loads-the-file",
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
    where="ranks",
    detected_by=("resume.weights", "resume.loads-the-file"),
    wraps=("paddle.nn:Layer.set_state_dict", "paddle.nn:Layer.set_dict", "paddle.nn:Layer.load_dict"),
)
def weight_not_loaded(real, self, state, *rest, **named):
    """A resumed run keeps the initial values of its last layer."""
    return real(self, {name: value for name, value in state.items() if "lm_head" not in name}, *rest, **named)


@fault(
    where="ranks",
    detected_by=("resume.losses", "resume.weights", "resume.loads-the-file"),
    wraps="paddlenlp.trainer:Trainer._load_from_checkpoint",
)
def stale_checkpoint(real, self, resume_from_checkpoint=None):
    """Resuming loads the checkpoint before the requested one."""
    if resume_from_checkpoint:
        folder, step = resume_from_checkpoint.rsplit("-", 1)
        older = f"{folder}-{int(step) - 1}"
        resume_from_checkpoint = older if os.path.isdir(older) else resume_from_checkpoint
    return real(self, resume_from_checkpoint)


@fault(where="ranks", detected_by=("resume.dropout-acts",), wraps="paddle.nn.functional:dropout")
def no_dropout(_real, x, *given, **named):
    """Dropout does nothing, so the resumed runs do not test the random state."""
    return x


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
