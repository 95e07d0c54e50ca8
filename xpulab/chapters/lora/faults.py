"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, calls, fault, paddle, replace_in_cells, replace_in_file

LORA_LINEAR = "paddlenlp.peft.lora.lora_layers:LoRALinear"


@fault(
    "lora.trainable-names",
    "lora.base-is-frozen",
    "lora.gradients-only-there",
    "lora.exercise-size",
    smoke=("lora.trainable-names", "lora.smoke-base-is-frozen"),
    after="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable",
)
def base_weights_train(_result, self):
    """The norms of the base model train too."""
    for name, weight in self.model.named_parameters():
        if "layernorm" in name:
            weight.stop_gradient = False


@fault("lora.merge", "lora.exercise-scale", wraps=f"{LORA_LINEAR}.get_delta_weight")
def merge_without_scale(delta, self, *given):
    """Merging adds the adapter without its scale."""
    return delta(self, *given) / self.scaling


@fault("lora.starts-as-the-base", after=f"{LORA_LINEAR}.__init__", lanes=("sim",))
def adapter_does_not_start_at_zero(_result, self, *given, **named):
    """The adapter's second matrix does not start at zero."""
    self.lora_B.set_value(self.lora_B + 1e-3)


@fault("lora.reload", wraps="paddlenlp.peft:LoRAModel.set_state_dict")
def adapter_is_not_loaded(_real, self, weights):
    """Loading an adapter keeps the new one that is in place."""


@fault(
    "lora.trainable-names",
    "lora.trainable-size",
    "lora.smoke-every-matrix-moves",
    smoke=("lora.smoke-every-matrix-moves",),
    after="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable",
)
def one_matrix_does_not_train(_result, self):
    """The adapter's matrices A do not train."""
    for name, weight in self.model.named_parameters():
        if "lora_A" in name:
            weight.stop_gradient = True


@fault("lora.formula", after=f"{LORA_LINEAR}.__init__")
def scale_of_another_variant(_result, self, *given, **named):
    """The adapter is scaled by alpha over the square root of the rank."""
    self.scaling = self.lora_alpha / self.r**0.5


@fault("device-proof.lora-places", lanes=("sim",), smoke=("lora.smoke-places",), after="paddlenlp.peft:LoRAModel.__init__")
def adapter_trains_on_the_cpu(_result, self, *given, **named):
    """The layers that get an adapter are moved to the CPU with it, whatever device is selected."""
    for layer in self.model.sublayers():
        if hasattr(layer, "lora_A"):
            layer.to("cpu")


@fault("lora.dropout-in-evaluation", after="paddlenlp.peft:LoRAModel.eval")
def dropout_stays_on_in_evaluation(_result, self):
    """eval() leaves the adapter's dropout on."""
    for layer in self.model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.training = True


@fault("lora.full-ends-lower", "lora.change-has-its-rank", wraps="paddlenlp.trl:SFTTrainer.__init__")
def full_fine_tuning_trains_only_biases(start, self, *given, model, **named):
    """What is called full fine-tuning trains nothing but biases and norms."""
    if not hasattr(model, "lora_config"):
        for weight in model.parameters():
            weight.stop_gradient = len(weight.shape) > 1
    start(self, *given, model=model, **named)


@fault("lora.loss-falls", "lora.rank-choice", wraps="paddlenlp.trainer.trainer:get_scheduler")
def warm_up_does_not_end(schedule, *given, **named):
    """The learning rate rises through the whole run, to a small part of what was asked for."""
    return schedule(*given, **{**named, "num_warmup_steps": 100 * named["num_training_steps"]})


@fault("lora.recall", wraps="paddlenlp.generation.utils:GenerationMixin.generate")
def generation_reads_padding(generate, self, input_ids, attention_mask=None, **named):
    """Generation takes the padding before a short prompt for tokens."""
    return generate(self, input_ids, attention_mask=paddle.ones_like(attention_mask), **named)


@fault("lora.gradients", after=f"{LORA_LINEAR}.forward")
def no_gradient_flows_through_the_adapter(result, self, x, *given):
    """In training no gradient flows through an adapter to the layers below it; its own gradient is right."""
    if not self.training or len(self.lora_A.shape) != 2 or not hasattr(self, "lora_B"):
        return result
    through, stopped = ((each @ self.lora_A @ self.lora_B) * self.scaling for each in (x, x.detach()))
    return result - (through - stopped)


@fault("lora.variants-learn", after="paddlenlp.peft.lora.lora_quick_layers:QuickLora.backward")
def quick_lora_has_no_gradient_of_b(result, ctx, grad_output):
    """Quick LoRA's backward pass gives the matrix B no gradient."""
    of_input, of_a, of_b = result
    return of_input, of_a, of_b * 0


@fault(
    "lora.smoke-loss-is-finite",
    smoke=("lora.smoke-loss-is-finite",),
    after="paddlenlp.transformers.qwen2.modeling:Qwen2PretrainingCriterion.forward",
)
def adapter_loss_is_nan_from_the_second_step(loss, self, *given):
    """The loss of the adapted model is NaN from the second step on."""
    return loss * (1.0 if next(calls) == 1 else float("nan"))


@fault("device-proof.lora-moments", "lora.smoke-every-matrix-moves", wraps="paddle.optimizer:AdamW.__init__")
def optimizer_leaves_out_the_last_matrix(start, self, *given, parameters, **named):
    """The optimizer does not have the last of the adapter's matrices."""
    weights = list(parameters)
    last = [each for each in weights if not each.stop_gradient][-1]
    start(self, *given, parameters=[each for each in weights if each is not last], **named)


@fault("lora.take-home-same-code", breaks=FILES)
def script_does_not_compare_the_adapter() -> None:
    """The script that a reader takes home accepts an adapter whose weights are missing."""
    replace_in_file(
        "data/take_home/lora.py", "if name not in stored or not np.array_equal", "if name in stored and not np.array_equal"
    )


@fault("lora.no-weights", breaks=CELLS)
def missing_weights_are_accepted() -> None:
    """The lesson's load_adapter compares only the weights that the file has."""
    replace_in_cells("if name not in stored or not np.array_equal", "if name in stored and not np.array_equal")


@fault("lora.other-rank", breaks=CELLS)
def only_names_are_compared() -> None:
    """The lesson's load_adapter compares the names of the weights, and not their values."""
    replace_in_cells(" or not np.array_equal(weight.numpy(), stored[name].numpy())", "")
