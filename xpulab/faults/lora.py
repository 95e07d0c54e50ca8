"""Faults that 02_lora must see."""

from __future__ import annotations

from xpulab.faults.fault import Fault

FAULTS = (
    Fault(
        name="base-weights-train",
        what="norms of the base model train along with the adapter",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft import LoRAModel
mark = LoRAModel.mark_only_lora_as_trainable
def mark_too_much(self):
    mark(self)
    for name, weight in self.model.named_parameters():
        if "layernorm" in name:
            weight.stop_gradient = False
LoRAModel.mark_only_lora_as_trainable = mark_too_much
""",
        seen_by=("lora.trainable-names", "lora.base-is-frozen", "lora.gradients-only-there"),
    ),
    Fault(
        name="merge-forgets-the-scale",
        what="merging adds the adapter without its scale",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
delta = LoRALinear.get_delta_weight
LoRALinear.get_delta_weight = lambda self, *given: delta(self, *given) / self.scaling
""",
        seen_by=("lora.merge",),
    ),
    Fault(
        name="adapter-starts-elsewhere",
        what="the adapter's second matrix does not start at zero",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
start = LoRALinear.__init__
def stirred(self, *given, **named):
    start(self, *given, **named)
    self.lora_B.set_value(self.lora_B + 1e-3)
LoRALinear.__init__ = stirred
""",
        seen_by=("lora.starts-as-the-base",),
    ),
    Fault(
        name="unmerge-does-nothing",
        what="unmerging leaves the merged weights in place",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
def unmerge(self):
    self.merged = False
LoRALinear.unmerge = unmerge
""",
        seen_by=("lora.unmerge",),
    ),
    Fault(
        name="adapter-is-not-loaded",
        what="loading an adapter leaves a fresh one in place",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft import LoRAModel
LoRAModel.set_state_dict = lambda self, weights: None
""",
        seen_by=("lora.reload",),
    ),
    Fault(
        name="one-matrix-does-not-train",
        what="the adapter's first matrices stay as they were drawn",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft import LoRAModel
mark = LoRAModel.mark_only_lora_as_trainable
def mark_half(self):
    mark(self)
    for name, weight in self.model.named_parameters():
        if "lora_A" in name:
            weight.stop_gradient = True
LoRAModel.mark_only_lora_as_trainable = mark_half
""",
        seen_by=("lora.trainable-names", "lora.trainable-size"),
    ),
    Fault(
        name="scale-of-another-variant",
        what="the adapter is scaled by alpha over the root of the rank",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
start = LoRALinear.__init__
def rescaled(self, *given, **named):
    start(self, *given, **named)
    self.scaling = self.lora_alpha / self.r**0.5
LoRALinear.__init__ = rescaled
""",
        seen_by=("lora.formula",),
    ),
)
