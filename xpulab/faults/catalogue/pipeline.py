"""Faults that 10_pipeline must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("10_pipeline", where="ranks", detected_by=("pipeline.gradients", "pipeline.chunks"))
def micro_batches_counted_twice() -> None:
    """The gradient of each micro-batch is added twice."""
    from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage

    real = PipelineStage.backward_one_chunk

    def twice(self, chunk, loss=None, **kwargs):
        return real(self, chunk, loss=None if loss is None else 2 * loss, **kwargs)

    PipelineStage.backward_one_chunk = twice


@fault("10_pipeline", where="ranks", detected_by=("pipeline.released",))
def inputs_not_released() -> None:
    """A schedule keeps the inputs of a micro-batch after its backward pass."""
    from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage

    real = PipelineStage.backward_one_chunk

    def keeping(self, chunk, *args, **kwargs):
        kept = self.fwd_cache[chunk]
        result = real(self, chunk, *args, **kwargs)
        self.fwd_cache[chunk] = kept
        return result

    PipelineStage.backward_one_chunk = keeping


@fault(
    "10_pipeline",
    device="sim",
    sim_faults="flip collective kind=recv bytes>=700 from=1 bit=22",
    detected_by=("pipeline.gradients",),
)
def activations_received_damaged() -> None:
    """One bit of what a stage receives is inverted."""


@fault("10_pipeline", where="ranks", detected_by=("pipeline.loss", "pipeline.gradients"))
def loss_averaged_twice() -> None:
    """The loss of each micro-batch is divided by the number of micro-batches a second time."""
    from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule

    real = _PipelineSchedule._compute_loss
    _PipelineSchedule._compute_loss = lambda self, output, target: real(self, output, target) / 4


@fault("10_pipeline", where="ranks", detected_by=("pipeline.return-output",))
def output_in_reverse_order() -> None:
    """The joined output has the micro-batches in reverse order."""
    from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule

    real = _PipelineSchedule._merge_outputs
    _PipelineSchedule._merge_outputs = lambda self, chunks: real(self, chunks[::-1])


@fault("10_pipeline", device="sim", detected_by=("pipeline.kept", "pipeline.memory"))
def schedule_keeps_all_micro_batches() -> None:
    """1F1B does all forward passes first and keeps all their activations."""
    from paddle.distributed.auto_parallel.pipelining import schedules

    schedules.Schedule1F1B = schedules.ScheduleFThenB


@fault("10_pipeline", where="ranks", detected_by=("pipeline.gradients",))
def gradient_not_sent_back() -> None:
    """The gradient of a stage does not reach the stage before it."""
    import paddle
    from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage

    real = PipelineStage.get_bwd_send_ops

    def blank(self, *args, **kwargs):
        for chunk, gradients in self.bwd_cache.items():
            self.bwd_cache[chunk] = tuple(None if each is None else paddle.zeros_like(each) for each in gradients)
        return real(self, *args, **kwargs)

    PipelineStage.get_bwd_send_ops = blank


@fault("10_pipeline", where="ranks", detected_by=("pipeline.second-step",))
def inputs_of_the_first_step_reused() -> None:
    """From the second step on, a schedule uses the micro-batches of the first step again."""
    from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule

    real = _PipelineSchedule._split_inputs

    def kept(self, args, kwargs=None):
        if args or kwargs:
            self.first = self.__dict__.get("first") or real(self, args, kwargs)
            return self.first
        return real(self, args, kwargs)

    _PipelineSchedule._split_inputs = kept


@fault("10_pipeline", where="ranks", detected_by=("pipeline.second-step",))
def losses_of_the_first_step_repeated() -> None:
    """In every step a schedule reports the losses of the first step."""
    from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule

    real = _PipelineSchedule._update_losses

    def kept(self, stages, losses):
        real(self, stages, losses)
        if losses:
            self.first = self.__dict__.get("first") or list(losses)
            losses[:] = self.first

    _PipelineSchedule._update_losses = kept
