"""The faults of this notebook."""

from __future__ import annotations

from xpulab.chapters.shared.fault import fault

LORA_LINEAR = "paddlenlp.peft.lora.lora_layers:LoRALinear"


@fault("lora.plus-in-the-trainer", wraps="paddlenlp.trl:SFTTrainer.create_optimizer")
def trainer_forgets_the_rate_of_lora_plus(create, self, *given, **named):
    """The trainer's optimizer gives all parameters the same learning rate."""
    for weight in self.model.parameters():
        weight.optimize_attr["learning_rate"] = 1.0
    return create(self, *given, **named)


@fault("lora.quick-path", wraps=f"{LORA_LINEAR}.__init__")
def quick_lora_is_plain(start, self, *given, **named):
    """The option use_quick_lora has no effect."""
    start(self, *given, **{**named, "use_quick_lora": False})


@fault("lora.model-options", after="paddlenlp.peft:LoRAModel.get_trainable_state_dict")
def file_has_the_adapter_only(weights, self, *given, **named):
    """The file lacks what trains beside the adapter."""
    return {name: value for name, value in weights.items() if "lora_" in name}


@fault("lora.model-options", wraps=f"{LORA_LINEAR}.forward")
def merged_layer_has_no_bias(forward, self, x, *given):
    """A merged layer leaves out its bias."""
    result = forward(self, x, *given)
    return result - self.bias if self.merged and self.bias is not None else result


@fault("lora.model-options", wraps="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable")
def biases_stay_frozen(mark, self):
    """The option trainable_bias has no effect."""
    mark(self)
    for name, weight in self.model.named_parameters():
        weight.stop_gradient |= name.endswith("bias")
