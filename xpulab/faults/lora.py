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
)
