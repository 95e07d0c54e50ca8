"""The faults of this chapter."""

from __future__ import annotations

from xpulab.chapters.shared.fault import CELLS, FILES, calls, fault, paddle, replace_in_cells, replace_in_file

LORA_LINEAR = "paddlenlp.peft.lora.lora_layers:LoRALinear"


@fault(
    detected_by=("lora.trainable-names", "lora.base-is-frozen", "lora.gradients-only-there", "lora.exercise-size"),
    smoke=("lora.trainable-names", "lora.smoke-base-is-frozen"),
    after="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable",
)
def base_weights_train(_result, self):
    """The norms of the base model train too."""
    for name, weight in self.model.named_parameters():
        if "layernorm" in name:
            weight.stop_gradient = False


@fault(
    detected_by=("lora.merge", "lora.model-options", "lora.exercise-scale"),
    wraps=f"{LORA_LINEAR}.get_delta_weight",
)
def merge_without_scale(delta, self, *given):
    """Merging adds the adapter without its scale."""
    return delta(self, *given) / self.scaling


@fault(detected_by=("lora.starts-as-the-base", "lora.model-options"), also_on=("sim",), after=f"{LORA_LINEAR}.__init__")
def adapter_does_not_start_at_zero(_result, self, *given, **named):
    """The adapter's second matrix does not start at zero."""
    self.lora_B.set_value(self.lora_B + 1e-3)


@fault(detected_by=("lora.layer-options", "lora.model-options"), wraps=f"{LORA_LINEAR}.unmerge")
def unmerge_does_nothing(_real, self):
    """Unmerging leaves the merged weights in place."""
    self.merged = False


@fault(detected_by=("lora.reload", "lora.model-options"), wraps="paddlenlp.peft:LoRAModel.set_state_dict")
def adapter_is_not_loaded(_real, self, weights):
    """Loading an adapter keeps the new one that is in place."""


@fault(
    detected_by=("lora.trainable-names", "lora.trainable-size", "lora.smoke-every-matrix-moves"),
    smoke=("lora.smoke-every-matrix-moves",),
    after="paddlenlp.peft:LoRAModel.mark_only_lora_as_trainable",
)
def one_matrix_does_not_train(_result, self):
    """The adapter's matrices A do not train."""
    for name, weight in self.model.named_parameters():
        if "lora_A" in name:
            weight.stop_gradient = True


@fault(detected_by=("lora.formula",), after=f"{LORA_LINEAR}.__init__")
def scale_of_another_variant(_result, self, *given, **named):
    """The adapter is scaled by alpha over the square root of the rank."""
    self.scaling = self.lora_alpha / self.r**0.5


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_LINEAR}.__init__")
def rslora_scaled_like_lora(start, self, *given, **named):
    """rsLoRA is scaled by alpha over the rank."""
    start(self, *given, **{**named, "rslora": False})


@fault(detected_by=("lora.model-options", "lora.plus-in-the-trainer"), wraps=f"{LORA_LINEAR}.__init__")
def lora_plus_is_plain(start, self, *given, **named):
    """In LoRA+ the learning rate of B is that of A."""
    start(self, *given, **{**named, "lora_plus_scale": 1.0})


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_LINEAR}.pissa_init")
def pissa_without_residual(initialise, self, rank):
    """PiSSA does not subtract the adapter from the weight."""
    weight = self.weight.clone()
    initialise(self, rank)
    self.weight.set_value(weight)


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_LINEAR}.__init__")
def pissa_is_plain(start, self, *given, **named):
    """PiSSA starts with random numbers, like LoRA."""
    start(self, *given, **{**named, "pissa": False})


@fault(detected_by=("lora.model-options",), after="paddlenlp.peft:LoRAModel.set_state_dict")
def pissa_starts_again_when_loaded(_result, self, weights):
    """PiSSA initialises itself again after loading, even after a first pass: the workaround fails."""
    for layer in self.model.sublayers():
        if getattr(layer, "pissa", False):
            layer.apply_pissa = False


@fault(detected_by=("lora.model-options",), wraps="paddlenlp.peft:LoRAModel.set_state_dict")
def mora_loads_transposed(load, self, weights):
    """A MoRA adapter is loaded transposed, so the workaround, serving it unmerged, fails."""
    square = {name: value for name, value in weights.items() if len(value.shape) == 2 and value.shape[0] == value.shape[1]}
    load(self, {**weights, **{name: value.T for name, value in square.items()}})


@fault(detected_by=("lora.merge", "lora.layer-options"), wraps=f"{LORA_LINEAR}.merge")
def merged_twice(_real, self):
    """Merging twice adds the adapter twice."""
    self.weight.set_value(self.weight + self.get_delta_weight())
    self.merged = True


@fault(
    device="sim",
    detected_by=("device-proof.lora-places",),
    smoke=("lora.smoke-places",),
    after="paddlenlp.peft:LoRAModel.__init__",
)
def adapter_trains_on_the_cpu(_result, self, *given, **named):
    """The layers that get an adapter are moved to the CPU with it, whatever device is selected."""
    for layer in self.model.sublayers():
        if hasattr(layer, "lora_A"):
            layer.to("cpu")


@fault(detected_by=("lora.dropout-in-evaluation", "lora.model-options"), after="paddlenlp.peft:LoRAModel.eval")
def dropout_stays_on_in_evaluation(_result, self):
    """eval() leaves the adapter's dropout on."""
    for layer in self.model.sublayers():
        if isinstance(layer, paddle.nn.Dropout):
            layer.training = True


@fault(detected_by=("lora.dropout-in-training",), wraps=f"{LORA_LINEAR}.__init__")
def dropout_is_ignored(start, self, *given, **named):
    """The option lora_dropout has no effect."""
    start(self, *given, **{**named, "lora_dropout": 0.0})


@fault(detected_by=("lora.plus-in-the-trainer",), wraps="paddlenlp.trl:SFTTrainer.create_optimizer")
def trainer_forgets_the_rate_of_lora_plus(create, self, *given, **named):
    """The trainer's optimizer gives all parameters the same learning rate."""
    for weight in self.model.parameters():
        weight.optimize_attr["learning_rate"] = 1.0
    return create(self, *given, **named)


@fault(detected_by=("lora.quick-path",), wraps=f"{LORA_LINEAR}.__init__")
def quick_lora_is_plain(start, self, *given, **named):
    """The option use_quick_lora has no effect."""
    start(self, *given, **{**named, "use_quick_lora": False})


@fault(
    detected_by=("lora.layer-options", "lora.model-options"), after="paddlenlp.peft.lora.lora_quick_layers:QuickLora.backward"
)
def quick_lora_scales_one_gradient_twice(result, ctx, grad_output):
    """Quick LoRA's backward pass scales the gradient of A twice."""
    of_input, of_a, of_b = result
    return of_input, of_a * ctx.scaling, of_b


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_LINEAR}.__init__")
def mora_is_plain(start, self, *given, **named):
    """The option use_mora has no effect."""
    start(self, *given, **{**named, "use_mora": False})


@fault(detected_by=("lora.model-options", "lora.layer-options"), after=f"{LORA_LINEAR}.__init__")
def mixer_is_not_used(_result, self, *given, **named):
    """The mixer has its square matrix, but computes without it."""
    self.lora_use_mixer = False


@fault(detected_by=("lora.take-home-config",), wraps="xpulab.chapters.shared.take_home:write")
def take_home_loses_the_rank(write, folder, *, script, config, device):
    """The configuration to take home has another learning rate and rank."""
    return write(folder, script=script, config={**config, "lora_rank": 4, "learning_rate": 3e-4}, device=device)


@fault(detected_by=("lora.take-home-encodes",), after="runpy:run_path")
def take_home_trains_on_the_prompt(names, path):
    """The encoding that a reader takes home learns the prompt too."""

    def encode(tokenizer, row):
        encoded = names["encode"](tokenizer, row)
        return {**encoded, "labels": [*encoded["input_ids"][1:], -100]}

    return {**names, "encode": encode}


@fault(detected_by=("lora.full-ends-lower", "lora.change-has-its-rank"), wraps="paddlenlp.trl:SFTTrainer.__init__")
def full_fine_tuning_trains_only_biases(start, self, *given, model, **named):
    """What is called full fine-tuning trains nothing but biases and norms."""
    if not hasattr(model, "lora_config"):
        for weight in model.parameters():
            weight.stop_gradient = len(weight.shape) > 1
    start(self, *given, model=model, **named)


@fault(detected_by=("lora.loss-falls", "lora.rank-choice"), wraps="paddlenlp.trainer.trainer:get_scheduler")
def warm_up_does_not_end(schedule, *given, **named):
    """The learning rate rises through the whole run, to a small part of what was asked for."""
    return schedule(*given, **{**named, "num_warmup_steps": 100 * named["num_training_steps"]})


@fault(detected_by=("lora.recall",), wraps="paddlenlp.generation.utils:GenerationMixin.generate")
def generation_reads_padding(generate, self, input_ids, attention_mask=None, **named):
    """Generation takes the padding before a short prompt for tokens."""
    return generate(self, input_ids, attention_mask=paddle.ones_like(attention_mask), **named)


@fault(detected_by=("lora.gradients",), after=f"{LORA_LINEAR}.forward")
def no_gradient_flows_through_the_adapter(result, self, x, *given):
    """In training no gradient flows through an adapter to the layers below it; its own gradient is right."""
    if not self.training or len(self.lora_A.shape) != 2 or not hasattr(self, "lora_B"):
        return result
    through, stopped = ((each @ self.lora_A @ self.lora_B) * self.scaling for each in (x, x.detach()))
    return result - (through - stopped)


@fault(detected_by=("lora.model-options",), after="paddlenlp.peft:LoRAModel.disable_lora")
def one_adapter_stays_on(_result, self):
    """disable_lora leaves the adapter of one layer on."""
    next(layer for layer in self.model.sublayers() if hasattr(layer, "lora_B")).disable_lora = False


@fault(detected_by=("lora.file-size", "lora.model-options"), wraps="paddlenlp.peft:LoRAModel.get_trainable_state_dict")
def base_is_saved_with_the_adapter(_real, self, *given, **named):
    """The file of an adapter has the weights of the base model too."""
    return self.model.state_dict()


@fault(detected_by=("lora.variants-learn",), after="paddlenlp.peft.lora.lora_quick_layers:QuickLora.backward")
def quick_lora_has_no_gradient_of_b(result, ctx, grad_output):
    """Quick LoRA's backward pass gives the matrix B no gradient."""
    of_input, of_a, of_b = result
    return of_input, of_a, of_b * 0


@fault(detected_by=("device-proof.lora-precision",), after="paddle.optimizer:AdamW.state_dict")
def moments_in_half_precision(state, self):
    """The optimizer gives its moments in bfloat16."""
    return {name: value.astype("bfloat16") if "moment" in name else value for name, value in state.items()}


@fault(detected_by=("lora.take-home-config",), after="paddlenlp.trainer:PdArgumentParser.parse_json_file")
def parser_ignores_the_warm_up(parsed, self, *given, **named):
    """PaddleNLP's parser ignores the steps of warm-up in the configuration."""
    for arguments in parsed:
        if hasattr(arguments, "warmup_steps"):
            arguments.warmup_steps = 0


@fault(
    detected_by=("lora.smoke-loss-is-finite",),
    smoke=("lora.smoke-loss-is-finite",),
    after="paddlenlp.transformers.qwen2.modeling:Qwen2PretrainingCriterion.forward",
)
def adapter_loss_is_nan_from_the_second_step(loss, self, *given):
    """The loss of the adapted model is NaN from the second step on."""
    return loss * (1.0 if next(calls) == 1 else float("nan"))


@fault(detected_by=("device-proof.lora-moments", "lora.smoke-every-matrix-moves"), wraps="paddle.optimizer:AdamW.__init__")
def optimizer_leaves_out_the_last_matrix(start, self, *given, parameters, **named):
    """The optimizer does not have the last of the adapter's matrices."""
    weights = list(parameters)
    last = [each for each in weights if not each.stop_gradient][-1]
    start(self, *given, parameters=[each for each in weights if each is not last], **named)


@fault(detected_by=("lora.take-home-same-code",), breaks=FILES)
def script_does_not_compare_the_adapter() -> None:
    """The script that a reader takes home accepts an adapter whose weights are missing."""
    replace_in_file(
        "data/take_home/lora.py", "if name not in stored or not np.array_equal", "if name in stored and not np.array_equal"
    )


@fault(detected_by=("lora.no-weights",), breaks=CELLS)
def missing_weights_are_accepted() -> None:
    """The lesson's load_adapter compares only the weights that the file has."""
    replace_in_cells("if name not in stored or not np.array_equal", "if name in stored and not np.array_equal")


@fault(detected_by=("lora.other-rank",), breaks=CELLS)
def only_names_are_compared() -> None:
    """The lesson's load_adapter compares the names of the weights, and not their values."""
    replace_in_cells(" or not np.array_equal(weight.numpy(), stored[name].numpy())", "")


# ------------------------------------------------------------------------------------------- what some options alone show


@fault(detected_by=("lora.layer-options", "lora.model-options"), after=f"{LORA_LINEAR}.__init__")
def scale_of_rank_four(_result, self, *given, **named):
    """The adapter is scaled by alpha over 4, whatever its rank is."""
    if not (self.use_mora or self.pissa):
        self.scaling *= self.r / 4


@fault(detected_by=("lora.layer-options", "lora.model-options"), after=f"{LORA_LINEAR}.__init__")
def scale_is_a_whole_number(_result, self, *given, **named):
    """The adapter is scaled by alpha over the rank without the remainder."""
    if not (self.use_mora or self.pissa):
        self.scaling = self.scaling // 1


@fault(detected_by=("lora.layer-options",), wraps=f"{LORA_LINEAR}.forward")
def odd_inputs_lose_the_last(forward, self, x, *given):
    """A layer with an adapter and an odd number of inputs leaves out the last one."""
    if self.weight.shape[0] % 2:
        x = paddle.concat([x[..., :-1], paddle.zeros_like(x[..., -1:])], axis=-1)
    return forward(self, x, *given)


@fault(detected_by=("lora.layer-options",), wraps=f"{LORA_LINEAR}.forward")
def merged_layer_has_no_bias(forward, self, x, *given):
    """A merged layer leaves out its bias."""
    result = forward(self, x, *given)
    return result - self.bias if self.merged and self.bias is not None else result


@fault(detected_by=("lora.layer-options",), wraps=f"{LORA_LINEAR}.forward")
def adapter_repeats_the_first_row_of_a_view(forward, self, x, *given):
    """A layer with an adapter reads the first row of a view for every row."""
    return forward(self, x if x.is_contiguous() else x[:1].expand_as(x), *given)


@fault(detected_by=("lora.layer-options", "lora.model-options"), wraps=f"{LORA_LINEAR}.forward")
def adapter_that_was_off_stays_off(forward, self, x, *given):
    """An adapter that has been switched off once is not used again."""
    self.was_off = getattr(self, "was_off", False) or self.disable_lora
    is_off, self.disable_lora = self.disable_lora, self.was_off
    result = forward(self, x, *given)
    self.disable_lora = is_off
    return result


@fault(detected_by=("lora.layer-options",), wraps=f"{LORA_LINEAR}.forward")
def dropout_of_a_layer_ignores_its_mode(forward, self, x, *given):
    """A layer drops inputs of its adapter in evaluation too."""
    if isinstance(self.lora_dropout, paddle.nn.Layer):
        self.lora_dropout.training = True
    return forward(self, x, *given)


@fault(detected_by=("lora.layer-options",), wraps=f"{LORA_LINEAR}.forward")
def adapter_computes_in_single_precision(forward, self, x, *given):
    """A layer with an adapter rounds the results of float64 to float32."""
    return forward(self, x, *given).astype("float32").astype(x.dtype)


@fault(detected_by=("lora.layer-options",), wraps="paddle.nn:Layer.set_state_dict")
def mixer_is_not_loaded(load, self, weights, *given, **named):
    """Loading leaves the square matrix of the mixer as it is."""
    return load(self, {name: value for name, value in weights.items() if "lora_AB" not in name}, *given, **named)


LORA_MODEL = "paddlenlp.peft:LoRAModel"


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_MODEL}.get_lora_model")
def dots_of_a_pattern_match_anything(adapt, self, model, config):
    """A dot in target_modules stands for any character, so block 1 is also 10 and 11."""
    patterns = config.target_modules
    config.target_modules = patterns.replace("\\", "") if isinstance(patterns, str) else patterns
    adapted = adapt(self, model, config)
    config.target_modules = patterns
    return adapted


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_MODEL}.get_lora_model")
def only_the_last_pattern_counts(adapt, self, model, config):
    """Of two target_modules only the last one is read."""
    patterns = config.target_modules
    config.target_modules = patterns[1:] if len(patterns) == 2 else patterns
    adapted = adapt(self, model, config)
    config.target_modules = patterns
    return adapted


@fault(detected_by=("lora.model-options",), after=f"{LORA_MODEL}._find_and_replace_module")
def adapted_layer_has_a_new_bias(_result, self, model, name, *given):
    """A layer that gets an adapter loses its bias: a new one of zeros takes its place."""
    layer = dict(model.named_sublayers())[name]
    if layer.bias is not None:
        layer.bias.set_value(paddle.zeros_like(layer.bias))


@fault(detected_by=("lora.model-options",), after=f"{LORA_LINEAR}.__init__")
def grouped_keys_are_scaled_twice(_result, self, inputs, outputs, **named):
    """The adapter of a layer that has half as many outputs as inputs, as those of grouped heads, has twice its scale."""
    self.scaling *= 2 if 2 * outputs == inputs else 1


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_MODEL}.mark_only_lora_as_trainable")
def further_modules_are_frozen(mark, self):
    """What trainable_modules names does not train."""
    named, self.lora_config.trainable_modules = self.lora_config.trainable_modules, None
    mark(self)
    self.lora_config.trainable_modules = named


@fault(detected_by=("lora.model-options",), after=f"{LORA_MODEL}.mark_only_lora_as_trainable")
def tied_head_is_frozen(_result, self):
    """A head that is the embedding, too, does not train, although trainable_modules names it."""
    if self.model.config.tie_word_embeddings:
        self.model.get_input_embeddings().weight.stop_gradient = True


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_MODEL}.mark_only_lora_as_trainable")
def biases_of_other_layers_train(mark, self):
    """With trainable_bias="lora" biases of layers without an adapter train, too."""
    wanted, self.lora_config.trainable_bias = self.lora_config.trainable_bias, self.lora_config.trainable_bias and "all"
    mark(self)
    self.lora_config.trainable_bias = wanted


@fault(detected_by=("lora.model-options",), wraps=f"{LORA_MODEL}.restore_original_model")
def restored_without_the_adapter(restore, self):
    """restore_original_model gives the model as it was before the adapter was merged."""
    self.unmerge()
    return restore(self)


@fault(detected_by=("lora.model-options",), after="paddlenlp.peft:LoRAConfig.from_pretrained")
def loaded_options_have_another_alpha(config, *given, **named):
    """The options that are loaded with an adapter have the usual alpha."""
    config.lora_alpha = 8
    return config


@fault(detected_by=("lora.model-options",), after=f"{LORA_MODEL}.get_trainable_state_dict")
def file_has_the_adapter_only(weights, self, *given, **named):
    """The file lacks what trains beside the adapter."""
    return {name: value for name, value in weights.items() if "lora_" in name}
