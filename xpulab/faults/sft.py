"""Faults that 01_sft must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="optimizer-does-not-step",
        what="the optimizer's step does nothing",
        notebook="01_sft",
        breaks="import paddle; paddle.optimizer.AdamW.step = lambda self: None",
        seen_by=("sft.loss-falls", "sft.every-weight-moves", "sft.trajectory", "sft.recall"),
    ),
    Fault(
        name="loss-of-nan",
        what="the loss is NaN; PaddleNLP's own Trainer refuses it",
        notebook="01_sft",
        breaks="""
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2PretrainingCriterion.forward
qwen2.Qwen2PretrainingCriterion.forward = lambda self, *given: forward(self, *given) * float("nan")
""",
        seen_by=("sft.loss-falls", "sft.recall"),
        says="nan",
    ),
    Fault(
        name="logits-of-nan",
        what="the logits are NaN: on the CPU their cross entropy is ln V, as if a healthy model learned nothing",
        notebook="01_sft",
        breaks="""
import paddlenlp.transformers.qwen2.modeling as qwen2
forward = qwen2.Qwen2LMHead.forward
qwen2.Qwen2LMHead.forward = lambda self, *given, **named: forward(self, *given, **named) * float("nan")
""",
        seen_by=("sft.loss-falls", "sft.gradients", "sft.logits"),
    ),
    Fault(
        name="doubled-gradients",
        what="every gradient is twice as large, which AdamW hides from the loss",
        notebook="01_sft",
        breaks="""
import paddle
backward = paddle.Tensor.backward
paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)
""",
        seen_by=("sft.gradients",),
    ),
    Fault(
        name="labels-not-moved",
        what="the labels are not moved by one, so that the model learns to repeat what it reads",
        notebook="01_sft",
        breaks="""
from xpulab.notebook import tiny
encode = tiny.encode
def unmoved(tokenizer, row):
    example = encode(tokenizer, row)
    return {**example, "labels": [-100, *example["labels"][:-1]]}
tiny.encode = unmoved
""",
        seen_by=("sft.labels-are-the-next-token", "sft.recall"),
    ),
)
