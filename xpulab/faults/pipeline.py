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
)
