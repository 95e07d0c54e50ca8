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


@fault("10_pipeline", where="ranks", detected_by=("pipeline.loss", "pipeline.gradients"), smoke=("pipeline.smoke-step",))
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


@fault("10_pipeline", device="sim", detected_by=("pipeline.kept", "pipeline.memory", "pipeline.order"))
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


@fault("10_pipeline", where="ranks", detected_by=("pipeline.training",))
def a_stage_is_not_updated() -> None:
    """The optimizer of one rank does not change the layers of its stage."""
    import paddle
    import paddle.distributed as dist

    real = paddle.optimizer.Momentum.step
    paddle.optimizer.Momentum.step = lambda self: None if dist.get_rank() == 0 else real(self)


@fault("10_pipeline", detected_by=("pipeline.formula", "pipeline.planned-order"))
def one_forward_pass_too_late() -> None:
    """The computed order of 1F1B starts with one forward pass less than it can."""
    from xpulab.faults.fault import replace_in_cells

    replace_in_cells("ahead = min(m, p - rank)", "ahead = max(1, min(m, p - rank) - 1)")


@fault("10_pipeline", detected_by=("pipeline.planned-order",))
def rounds_of_vpp_too_long() -> None:
    """VPP sends all micro-batches through its first stages before it begins with its second ones."""
    from paddle.distributed.auto_parallel.pipelining.schedules import ScheduleVPP

    real = ScheduleVPP._calculate_single_rank_operations

    def in_one_round(self, rank):
        self.number_of_rounds, self.microbatches_per_round = 1, self._n_microbatches
        return real(self, rank)

    ScheduleVPP._calculate_single_rank_operations = in_one_round


@fault("10_pipeline", where="ranks", detected_by=("pipeline.order", "pipeline.bubble", "pipeline.kept"))
def one_micro_batch_at_a_time() -> None:
    """FThenB finishes each micro-batch before it starts the next one: right results, but only one rank works at a time."""
    from paddle.distributed.auto_parallel.pipelining import schedules

    def exchange(operations):
        if work := schedules._batch_p2p(operations):
            work.wait()

    def one_at_a_time(self, arg_mbs=None, kwarg_mbs=None, target_mbs=None, losses=None):
        stage = self._stage
        arg_mbs, kwarg_mbs = self._check_inputs(arg_mbs, kwarg_mbs, target_mbs, losses)
        if not self._stage_initialized:
            self._initialize_stage(arg_mbs[0], kwarg_mbs[0], target_mbs[0])
        for chunk in range(self._n_microbatches):
            exchange(stage.get_fwd_recv_ops(chunk))
            output = stage.forward_one_chunk(chunk, arg_mbs[chunk], kwarg_mbs[chunk])
            exchange(stage.get_fwd_send_ops(chunk))
            self._maybe_compute_loss(stage, output, target_mbs, chunk)
            exchange(stage.get_bwd_recv_ops(chunk))
            stage.backward_one_chunk(chunk, loss=self._maybe_get_loss(stage, chunk))
            exchange(stage.get_bwd_send_ops(chunk))
        self._update_losses(stage, losses)

    schedules.ScheduleFThenB._step_microbatches = one_at_a_time
