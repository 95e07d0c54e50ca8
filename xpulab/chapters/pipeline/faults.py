"""The faults of this chapter."""

from __future__ import annotations

from types import SimpleNamespace

from xpulab.chapters.shared.fault import CELLS, dist, fault, paddle, replace_in_cells

SCHEDULES = "paddle.distributed.auto_parallel.pipelining.schedules"
STAGE = "paddle.distributed.auto_parallel.pipelining.stage:PipelineStage"


@fault("pipeline.gradients", where="ranks", wraps=f"{STAGE}.backward_one_chunk")
def micro_batches_counted_twice(real, self, chunk, loss=None, **kwargs):
    """The gradient of each micro-batch is added twice."""
    return real(self, chunk, loss=None if loss is None else 2 * loss, **kwargs)


@fault("pipeline.released", where="ranks", wraps=f"{STAGE}.backward_one_chunk")
def inputs_not_released(real, self, chunk, *args, **kwargs):
    """A schedule keeps the inputs of a micro-batch after its backward pass."""
    kept = self.fwd_cache[chunk]
    result = real(self, chunk, *args, **kwargs)
    self.fwd_cache[chunk] = kept
    return result


@fault(
    "pipeline.loss",
    "pipeline.gradients",
    where="ranks",
    smoke=("pipeline.smoke-step",),
    wraps=f"{SCHEDULES}:_PipelineSchedule._compute_loss",
)
def loss_averaged_twice(real, self, output, target):
    """The loss of each micro-batch is divided by the number of micro-batches a second time."""
    return real(self, output, target) / 4


@fault("pipeline.kept", "pipeline.memory", "pipeline.order", lanes=("sim",), replaces=f"{SCHEDULES}:Schedule1F1B")
def schedule_keeps_all_micro_batches(_real):
    """1F1B does all forward passes first and keeps all their activations."""
    from paddle.distributed.auto_parallel.pipelining import schedules

    return schedules.ScheduleFThenB


@fault("pipeline.second-step", where="ranks", wraps=f"{SCHEDULES}:_PipelineSchedule._split_inputs")
def inputs_of_the_first_step_reused(real, self, args, kwargs=None):
    """From the second step on, a schedule uses the micro-batches of the first step again."""
    if args or kwargs:
        self.first = self.__dict__.get("first") or real(self, args, kwargs)
        return self.first
    return real(self, args, kwargs)


@fault("pipeline.training", where="ranks", wraps="paddle.optimizer:Momentum.step")
def a_stage_is_not_updated(real, self):
    """The optimizer of one rank does not change the layers of its stage."""
    return None if dist.get_rank() == 0 else real(self)


@fault("pipeline.formula", "pipeline.exercise-bubble", "pipeline.exercise-kept", breaks=CELLS)
def one_forward_pass_too_late() -> None:
    """The computed order of 1F1B starts with one forward pass less than it can."""
    replace_in_cells("ahead = min(m, p - rank)", "ahead = max(1, min(m, p - rank) - 1)")


@fault("pipeline.all-layers", where="ranks", wraps=f"{SCHEDULES}:_manual_model_split")
def groups_lose_all_layers_but_the_first(real, model, *rest):
    """The split of a model into stages keeps only the first layer of a group of layers."""
    first = [each[0] if isinstance(each, paddle.nn.Sequential) else each for each in model.layers]
    return real(SimpleNamespace(layers=paddle.nn.LayerList(first), config=model.config), *rest)


@fault("pipeline.bitwise", lanes=("sim",), where="ranks", after=f"{SCHEDULES}:Schedule1F1B._step_microbatches")
def last_bit_of_gradients_under_1f1b(_result, self, *given):
    """The gradients under 1F1B differ in their last bit from those of the other schedules."""
    for weight in self._stage.sublayer.parameters():
        weight.grad.set_value(weight.grad * (1 + 2**-22))
