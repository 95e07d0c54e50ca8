"""Faults that 03_dpo must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="reference-model-trains",
        what="the reference model follows the policy",
        notebook="03_dpo",
        breaks="""
from paddlenlp.trl import DPOTrainer
metrics = DPOTrainer.get_batch_metrics
def following(self, ref_model, model, batch, train_eval="train"):
    loss = metrics(self, ref_model, model, batch, train_eval)
    if ref_model is not None:
        for kept, moving in zip(ref_model.parameters(), model.parameters()):
            kept.set_value(kept * 0.9 + moving * 0.1)
    return loss
DPOTrainer.get_batch_metrics = following
""",
        seen_by=("dpo.reference-is-frozen",),
    ),
    Fault(
        name="margin-with-the-wrong-sign",
        what="the loss prefers the rejected answer",
        notebook="03_dpo",
        breaks="""
from paddlenlp.trl import DPOCriterion
loss = DPOCriterion.dpo_loss
def turned(self, pi_chosen, pi_rejected, ref_chosen, ref_rejected):
    return loss(self, pi_rejected, pi_chosen, ref_rejected, ref_chosen)
DPOCriterion.dpo_loss = turned
""",
        seen_by=("dpo.margin", "dpo.accuracy", "dpo.first-gradients", "dpo.losses", "dpo.style"),
    ),
    Fault(
        name="question-is-learned",
        what="the question counts as part of both answers",
        notebook="03_dpo",
        breaks="""
from paddlenlp.trl import DPOCriterion
logps = DPOCriterion.dpo_logps
def with_question(self, logits, chosen, rejected, bounds, average_log_prob=False):
    bounds = bounds.clone()
    bounds[:, 1] -= 2
    return logps(self, logits, chosen, rejected, bounds, average_log_prob)
DPOCriterion.dpo_logps = with_question
""",
        seen_by=("dpo.question-has-no-gradient", "dpo.packing"),
    ),
    Fault(
        name="answers-see-each-other",
        what="the mask of the packed sequence is merely causal, so that the rejected answer sees the chosen one",
        notebook="03_dpo",
        breaks="""
import numpy as np
from paddlenlp.trl import trl_data
import paddlenlp.trl as trl
encode = trl.preprocess_preference_data
def seeing(*given):
    example = encode(*given)
    return {**example, "attention_mask": np.tri(len(example["input_ids"]), dtype=bool)}
trl.preprocess_preference_data = seeing
""",
        seen_by=("dpo.packing", "dpo.first-gradients"),
    ),
    Fault(
        name="positions-go-on",
        what="the rejected answer's positions count on from the chosen one's end",
        notebook="03_dpo",
        breaks="""
import paddlenlp.trl as trl
encode = trl.preprocess_preference_data
def going_on(*given):
    example = encode(*given)
    return {**example, "position_ids": list(range(len(example["input_ids"])))}
trl.preprocess_preference_data = going_on
""",
        seen_by=("dpo.packing",),
    ),
    Fault(
        name="beta-is-forgotten",
        what="the loss is computed with beta 1",
        notebook="03_dpo",
        breaks="""
from dataclasses import replace
from paddlenlp.trl import DPOCriterion
loss = DPOCriterion.dpo_loss
def plain(self, *logps):
    own, self.dpo_config = self.dpo_config, replace(self.dpo_config, beta=1.0)
    try:
        return loss(self, *logps)
    finally:
        self.dpo_config = own
DPOCriterion.dpo_loss = plain
""",
        seen_by=("dpo.first-loss", "dpo.losses", "dpo.first-gradients"),
    ),
    Fault(
        name="adapter-stays-on-for-the-reference",
        what="DPO with LoRA compares the policy with itself",
        notebook="03_dpo",
        breaks="""
from paddlenlp.trl import DPOTrainer
DPOTrainer.disable_lora = lambda self, model: None
""",
        seen_by=("dpo.lora-margin", "dpo.lora-reference"),
    ),
    Fault(
        name="no-reference",
        what="the loss leaves the reference out",
        notebook="03_dpo",
        breaks="""
from paddlenlp.trl import DPOCriterion
loss = DPOCriterion.dpo_loss
DPOCriterion.dpo_loss = lambda self, a, b, c, d: loss(self, a, b, 0 * c, 0 * d)
""",
        seen_by=("dpo.first-loss", "dpo.starts-at-ln-2"),
    ),
    Fault(
        name="thumbs-exchanged",
        what="KTO weighs answers with the thumb up as if it were down",
        notebook="03_dpo",
        breaks="""
from dataclasses import replace
from paddlenlp.trl import KTOCriterion
start = KTOCriterion.__init__
def exchanged(self, config, kto_config=None, **named):
    up, down = kto_config.desirable_weight, kto_config.undesirable_weight
    start(self, config, kto_config=replace(kto_config, desirable_weight=down, undesirable_weight=up), **named)
KTOCriterion.__init__ = exchanged
""",
        seen_by=("dpo.kto-loss", "dpo.kto-first-loss"),
    ),
    Fault(
        name="preference-gradients-doubled",
        what="every gradient of preference training is twice as large",
        notebook="03_dpo",
        breaks="""
import paddle
backward = paddle.Tensor.backward
paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)
""",
        seen_by=("dpo.first-gradients", "dpo.gradients"),
    ),
    Fault(
        name="reference-on-the-cpu",
        what="the reference model stays on the CPU",
        notebook="03_dpo",
        device="sim",
        breaks="""
from paddlenlp.trl import DPOTrainer
start = DPOTrainer.__init__
def left_behind(self, *given, **named):
    start(self, *given, **named)
    if self.ref_model is not None:
        self.ref_model.to("cpu")
DPOTrainer.__init__ = left_behind
""",
        seen_by=("device-proof.dpo-places",),
    ),
)
