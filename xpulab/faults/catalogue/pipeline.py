"""Faults that 07_pipeline must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault, in_every_rank

FAULTS = (
    Fault(
        name="micro-batches-count-twice",
        what="each micro-batch adds twice its gradient",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage
            real = PipelineStage.backward_one_chunk
            def twice(self, chunk, loss=None, **named):
                return real(self, chunk, loss=None if loss is None else 2 * loss, **named)
            PipelineStage.backward_one_chunk = twice
        """),
        seen_by=("pipeline.gradients", "pipeline.chunks"),
    ),
    Fault(
        name="inputs-held-on-to",
        what="a schedule keeps the inputs of a micro-batch after its backward pass",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage
            real = PipelineStage.backward_one_chunk
            def holding(self, chunk, *given, **named):
                kept = self.fwd_cache[chunk]
                result = real(self, chunk, *given, **named)
                self.fwd_cache[chunk] = kept
                return result
            PipelineStage.backward_one_chunk = holding
        """),
        seen_by=("pipeline.released",),
    ),
    Fault(
        name="activations-arrive-damaged",
        what="a bit is inverted in what a stage receives",
        notebook="07_pipeline",
        device="sim",
        sim_faults="flip collective kind=recv bytes>=700 from=1 bit=22",
        seen_by=("pipeline.gradients",),
    ),
    Fault(
        name="loss-averaged-twice",
        what="each micro-batch's loss is divided by their number once more",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule
            real = _PipelineSchedule._compute_loss
            _PipelineSchedule._compute_loss = lambda self, output, target: real(self, output, target) / 4
        """),
        seen_by=("pipeline.loss", "pipeline.gradients"),
    ),
    Fault(
        name="output-in-another-order",
        what="the merged output has the micro-batches in reverse order",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule
            real = _PipelineSchedule._merge_outputs
            _PipelineSchedule._merge_outputs = lambda self, chunks: real(self, chunks[::-1])
        """),
        seen_by=("pipeline.return-output",),
    ),
    Fault(
        name="schedule-that-keeps-all",
        what="1F1B does all forward passes first, and keeps them all",
        notebook="07_pipeline",
        device="sim",
        breaks="""
from paddle.distributed.auto_parallel.pipelining import schedules
schedules.Schedule1F1B = schedules.ScheduleFThenB
""",
        seen_by=("pipeline.kept", "pipeline.memory"),
    ),
    Fault(
        name="gradient-is-not-sent-back",
        what="a stage's gradient does not reach the stage before it",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            import paddle
            from paddle.distributed.auto_parallel.pipelining.stage import PipelineStage
            real = PipelineStage.get_bwd_send_ops
            def blank(self, *given, **named):
                for chunk, gradients in self.bwd_cache.items():
                    self.bwd_cache[chunk] = tuple(None if each is None else paddle.zeros_like(each) for each in gradients)
                return real(self, *given, **named)
            PipelineStage.get_bwd_send_ops = blank
        """),
        seen_by=("pipeline.gradients",),
    ),
    Fault(
        name="inputs-of-the-step-before",
        what="from the second step on a schedule hands out the first step's micro-batches",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule
            real = _PipelineSchedule._split_inputs
            def kept(self, args, kwargs=None):
                if args or kwargs:
                    self.first = self.__dict__.get("first") or real(self, args, kwargs)
                    return self.first
                return real(self, args, kwargs)
            _PipelineSchedule._split_inputs = kept
        """),
        seen_by=("pipeline.second-step",),
    ),
    Fault(
        name="losses-of-the-step-before",
        what="a schedule reports the first step's losses for ever",
        notebook="07_pipeline",
        breaks=in_every_rank("""
            from paddle.distributed.auto_parallel.pipelining.schedules import _PipelineSchedule
            real = _PipelineSchedule._update_losses
            def kept(self, stages, losses):
                real(self, stages, losses)
                if losses:
                    self.first = self.__dict__.get("first") or list(losses)
                    losses[:] = self.first
            _PipelineSchedule._update_losses = kept
        """),
        seen_by=("pipeline.second-step",),
    ),
)
