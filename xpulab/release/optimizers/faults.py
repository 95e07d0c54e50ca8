"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault, paddle


@fault("sft.optimizer-options", lanes=("cpu", "sim"), wraps="paddle.amp:GradScaler.step")
def gradients_are_clipped_before_they_are_divided(step, self, optimizer):
    """Gradients are clipped while they are still multiplied by the factor of the scaler."""
    clip = optimizer._grad_clip
    if clip is None or not self.is_enable():
        return step(self, optimizer)
    weights = [weight for weight in optimizer._parameter_list if weight.grad is not None]
    for weight, gradient in clip([(weight, weight.grad) for weight in weights]):
        weight.grad.set_value(gradient)
    optimizer._grad_clip = None
    try:
        return step(self, optimizer)
    finally:
        optimizer._grad_clip = clip


@fault("sft.optimizer-options", "resume.states", wraps="paddle.optimizer:Optimizer.set_state_dict")
def powers_of_beta_begin_anew(load, self, state):
    """A loaded optimizer corrects the bias of its moments as in the first step."""
    anew = {name: paddle.full_like(value, 0.9) for name, value in state.items() if "beta1_pow" in name}
    return load(self, {**state, **anew})


@fault("sft.schedules", "sft.plateaus", after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def schedule_loads_the_next_epoch(_result, self, state):
    """A loaded schedule is one epoch further than it was saved."""
    self.last_epoch += 1


@fault("resume.states", after="paddle.optimizer.lr:LRScheduler.set_state_dict")
def step_0_is_taken_for_none(_result, self, state):
    """A schedule that was saved before the first step begins with its second."""
    if not self.last_epoch and not isinstance(self, paddle.optimizer.lr.ReduceOnPlateau):  # that one takes a metric
        self.step()


@fault("sft.scalers", after="paddle.amp:GradScaler.load_state_dict")
def scaler_counts_good_steps_anew(_result, self, state):
    """A loaded scaler has counted no good step since the factor changed."""
    self._incr_count = 0


@fault("sft.scalers", wraps="paddle.amp.grad_scaler:AmpScaler._unscale")
def second_optimizer_is_not_divided(unscale, self, optimizer):
    """Of two optimizers under one scaler only the gradients of the first are divided by the factor."""
    if self._optimizer_states.keys() - {id(optimizer)}:
        self._optimizer_states[id(optimizer)]["state"] = paddle.amp.grad_scaler.OptimizerState.UNSCALED
    else:
        unscale(self, optimizer)


@fault("sft.batches", wraps="paddle.io:BatchSampler.__iter__")
def last_short_batch_is_dropped(batches, self):
    """A last batch with fewer rows is left out, whatever drop_last says."""
    return (batch for batch in batches(self) if len(batch) == self.batch_size)


@fault("resume.states", wraps="paddle.distributed.fleet.layers.mpu.random:RNGStatesTracker.set_states_tracker")
def streams_of_parts_are_not_loaded(_real, self, states):
    """The random streams of model parallelism keep the state that they have when a checkpoint is loaded."""


@fault("sft.loop-arguments", wraps="paddle.optimizer:Optimizer.zero_grad")
def zero_grad_always_removes_gradients(clear, self, set_to_none=True):
    """zero_grad removes gradients, where it must set them to 0."""
    clear(self)
