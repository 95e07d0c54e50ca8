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
    Fault(
        name="rslora-scaled-like-lora",
        what="rsLoRA is scaled by alpha over the rank",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
start = LoRALinear.__init__
def without(self, *given, **named):
    start(self, *given, **{**named, "rslora": False})
LoRALinear.__init__ = without
""",
        seen_by=("lora.variants-scale",),
    ),
    Fault(
        name="lora-plus-is-plain",
        what="in LoRA+ the matrices B learn no faster than A",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
start = LoRALinear.__init__
def without(self, *given, **named):
    start(self, *given, **{**named, "lora_plus_scale": 1.0})
LoRALinear.__init__ = without
""",
        seen_by=("lora.plus-rate",),
    ),
    Fault(
        name="pissa-counts-twice",
        what="PiSSA leaves in the weight what it puts into the adapter",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
initialise = LoRALinear.pissa_init
def without_residual(self, rank):
    weight = self.weight.clone()
    initialise(self, rank)
    self.weight.set_value(weight)
LoRALinear.pissa_init = without_residual
""",
        seen_by=("lora.variants-start",),
    ),
    Fault(
        name="pissa-is-plain",
        what="PiSSA starts from random numbers, like LoRA",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
start = LoRALinear.__init__
def without(self, *given, **named):
    start(self, *given, **{**named, "pissa": False})
LoRALinear.__init__ = without
""",
        seen_by=("lora.pissa-start",),
    ),
    Fault(
        name="pissa-starts-again-when-loaded",
        what="PiSSA initialises itself once more after loading, also when a first pass has been made: the way round is closed",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft import LoRAModel
load = LoRAModel.set_state_dict
def load_and_forget(self, weights):
    load(self, weights)
    for layer in self.model.sublayers():
        if getattr(layer, "pissa", False):
            layer.apply_pissa = False
LoRAModel.set_state_dict = load_and_forget
""",
        seen_by=("lora.pissa-loaded-late",),
    ),
    Fault(
        name="mora-loads-transposed",
        what="a MoRA adapter is loaded transposed, so that serving it unmerged is no way round its merge",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft import LoRAModel
load = LoRAModel.set_state_dict
def turned(self, weights):
    square = {name: value for name, value in weights.items() if len(value.shape) == 2 and value.shape[0] == value.shape[1]}
    load(self, {**weights, **{name: value.T for name, value in square.items()}})
LoRAModel.set_state_dict = turned
""",
        seen_by=("lora.variants-reload",),
    ),
    Fault(
        name="merged-twice",
        what="merging what is merged already adds the adapter once more",
        notebook="02_lora",
        breaks="""
from paddlenlp.peft.lora.lora_layers import LoRALinear
def merge(self):
    self.weight.set_value(self.weight + self.get_delta_weight())
    self.merged = True
LoRALinear.merge = merge
""",
        seen_by=("lora.merge",),
    ),
    Fault(
        name="adapter-trains-on-the-cpu",
        what="model and adapter are on the CPU, whatever device was asked for",
        notebook="02_lora",
        device="sim",
        breaks="""
from xpulab.notebook import models
new = models.new_model
models.new_model = lambda *given: new(*given).to("cpu")
""",
        seen_by=("device-proof.lora-places",),
    ),
)
