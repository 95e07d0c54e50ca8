"""Faults that 03_lora must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault(
    "03_lora",
    detected_by=("lora.trainable-names", "lora.base-is-frozen", "lora.gradients-only-there"),
    smoke=("lora.trainable-names", "lora.smoke-base-is-frozen"),
)
def base_weights_train() -> None:
    """The norms of the base model train too."""
    from paddlenlp.peft import LoRAModel

    mark = LoRAModel.mark_only_lora_as_trainable

    def mark_too_much(self):
        mark(self)
        for name, weight in self.model.named_parameters():
            if "layernorm" in name:
                weight.stop_gradient = False

    LoRAModel.mark_only_lora_as_trainable = mark_too_much


@fault("03_lora", detected_by=("lora.merge", "lora.merged-weights"))
def merge_without_scale() -> None:
    """Merging adds the adapter without its scale."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    delta = LoRALinear.get_delta_weight
    LoRALinear.get_delta_weight = lambda self, *given: delta(self, *given) / self.scaling


@fault("03_lora", detected_by=("lora.starts-as-the-base",), also_on=("sim",))
def adapter_does_not_start_at_zero() -> None:
    """The adapter's second matrix does not start at zero."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def not_zero(self, *given, **named):
        start(self, *given, **named)
        self.lora_B.set_value(self.lora_B + 1e-3)

    LoRALinear.__init__ = not_zero


@fault("03_lora", detected_by=("lora.unmerge",))
def unmerge_does_nothing() -> None:
    """Unmerging leaves the merged weights in place."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    def unmerge(self):
        self.merged = False

    LoRALinear.unmerge = unmerge


@fault("03_lora", detected_by=("lora.reload",))
def adapter_is_not_loaded() -> None:
    """Loading an adapter keeps the new one that is in place."""
    from paddlenlp.peft import LoRAModel

    LoRAModel.set_state_dict = lambda self, weights: None


@fault("03_lora", detected_by=("lora.trainable-names", "lora.trainable-size"))
def one_matrix_does_not_train() -> None:
    """The adapter's matrices A do not train."""
    from paddlenlp.peft import LoRAModel

    mark = LoRAModel.mark_only_lora_as_trainable

    def mark_half(self):
        mark(self)
        for name, weight in self.model.named_parameters():
            if "lora_A" in name:
                weight.stop_gradient = True

    LoRAModel.mark_only_lora_as_trainable = mark_half


@fault("03_lora", detected_by=("lora.formula",))
def scale_of_another_variant() -> None:
    """The adapter is scaled by alpha over the square root of the rank."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def rescaled(self, *given, **named):
        start(self, *given, **named)
        self.scaling = self.lora_alpha / self.r**0.5

    LoRALinear.__init__ = rescaled


@fault("03_lora", detected_by=("lora.variants-scale",))
def rslora_scaled_like_lora() -> None:
    """rsLoRA is scaled by alpha over the rank."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "rslora": False})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.plus-rate",))
def lora_plus_is_plain() -> None:
    """In LoRA+ the learning rate of B is that of A."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "lora_plus_scale": 1.0})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.variants-start",))
def pissa_without_residual() -> None:
    """PiSSA does not subtract the adapter from the weight."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    initialise = LoRALinear.pissa_init

    def without_residual(self, rank):
        weight = self.weight.clone()
        initialise(self, rank)
        self.weight.set_value(weight)

    LoRALinear.pissa_init = without_residual


@fault("03_lora", detected_by=("lora.pissa-start",))
def pissa_is_plain() -> None:
    """PiSSA starts with random numbers, like LoRA."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "pissa": False})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.pissa-loaded-late",))
def pissa_starts_again_when_loaded() -> None:
    """PiSSA initialises itself again after loading, even after a first pass: the workaround fails."""
    from paddlenlp.peft import LoRAModel

    load = LoRAModel.set_state_dict

    def load_and_reset(self, weights):
        load(self, weights)
        for layer in self.model.sublayers():
            if getattr(layer, "pissa", False):
                layer.apply_pissa = False

    LoRAModel.set_state_dict = load_and_reset


@fault("03_lora", detected_by=("lora.variants-reload",))
def mora_loads_transposed() -> None:
    """A MoRA adapter is loaded transposed, so the workaround, serving it unmerged, fails."""
    from paddlenlp.peft import LoRAModel

    load = LoRAModel.set_state_dict

    def load_transposed(self, weights):
        square = {name: value for name, value in weights.items() if len(value.shape) == 2 and value.shape[0] == value.shape[1]}
        load(self, {**weights, **{name: value.T for name, value in square.items()}})

    LoRAModel.set_state_dict = load_transposed


@fault("03_lora", detected_by=("lora.merge",))
def merged_twice() -> None:
    """Merging twice adds the adapter twice."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    def merge(self):
        self.weight.set_value(self.weight + self.get_delta_weight())
        self.merged = True

    LoRALinear.merge = merge


@fault("03_lora", device="sim", detected_by=("device-proof.lora-places",), smoke=("lora.smoke-places",))
def adapter_trains_on_the_cpu() -> None:
    """Model and adapter are on the CPU, whatever device is selected."""
    from xpulab.notebook import models

    new = models.new_model
    models.new_model = lambda *given: new(*given).to("cpu")


@fault("03_lora", detected_by=("lora.dropout-in-evaluation",))
def dropout_stays_on_in_evaluation() -> None:
    """eval() leaves the adapter's dropout on."""
    import paddle
    from paddlenlp.peft import LoRAModel

    evaluate = LoRAModel.eval

    def evaluate_with_dropout(self):
        evaluate(self)
        for layer in self.model.sublayers():
            if isinstance(layer, paddle.nn.Dropout):
                layer.training = True

    LoRAModel.eval = evaluate_with_dropout


@fault("03_lora", detected_by=("lora.dropout-in-training",))
def dropout_is_ignored() -> None:
    """The option lora_dropout has no effect."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "lora_dropout": 0.0})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.plus-in-the-trainer",))
def trainer_forgets_the_rate_of_lora_plus() -> None:
    """The trainer's optimizer gives all parameters the same learning rate."""
    from paddlenlp.trl import SFTTrainer

    create = SFTTrainer.create_optimizer

    def create_with_one_rate(self, *given, **named):
        for weight in self.model.parameters():
            weight.optimize_attr["learning_rate"] = 1.0
        return create(self, *given, **named)

    SFTTrainer.create_optimizer = create_with_one_rate


@fault("03_lora", detected_by=("lora.quick-path",))
def quick_lora_is_plain() -> None:
    """The option use_quick_lora has no effect."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "use_quick_lora": False})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.quick-gradients",))
def quick_lora_scales_one_gradient_twice() -> None:
    """Quick LoRA's backward pass scales the gradient of A twice."""
    from paddlenlp.peft.lora.lora_quick_layers import QuickLora

    backward = QuickLora.backward

    def scaled_twice(ctx, grad_output):
        of_input, of_a, of_b = backward(ctx, grad_output)
        return of_input, of_a * ctx.scaling, of_b

    QuickLora.backward = staticmethod(scaled_twice)


@fault("03_lora", detected_by=("lora.variants-shapes",))
def mora_is_plain() -> None:
    """The option use_mora has no effect."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "use_mora": False})

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.variants-scale",))
def mixer_is_not_used() -> None:
    """The mixer has its square matrix, but computes without it."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **named)
        self.lora_use_mixer = False

    LoRALinear.__init__ = without


@fault("03_lora", detected_by=("lora.take-home-config",))
def take_home_loses_the_rank() -> None:
    """The configuration to take home has another learning rate and rank."""
    from xpulab.notebook import take_home

    write = take_home.write

    def write_another(folder, *, script, config, device):
        return write(folder, script=script, config={**config, "lora_rank": 4, "learning_rate": 3e-4}, device=device)

    take_home.write = write_another


@fault("03_lora", detected_by=("lora.take-home-encodes",))
def take_home_trains_on_the_prompt() -> None:
    """The encoding that a reader takes home learns the prompt too."""
    import runpy

    run = runpy.run_path

    def run_unmasked(path):
        names = run(path)

        def encode(tokenizer, row):
            encoded = names["encode"](tokenizer, row)
            return {**encoded, "labels": [*encoded["input_ids"][1:], -100]}

        return {**names, "encode": encode}

    runpy.run_path = run_unmasked


@fault("03_lora", detected_by=("lora.full-ends-lower", "lora.change-has-its-rank"))
def full_fine_tuning_trains_only_biases() -> None:
    """What is called full fine-tuning trains nothing but biases and norms."""
    from paddlenlp.trl import SFTTrainer

    start = SFTTrainer.__init__

    def freeze(self, *given, model, **named):
        if not hasattr(model, "lora_config"):
            for weight in model.parameters():
                weight.stop_gradient = len(weight.shape) > 1
        start(self, *given, model=model, **named)

    SFTTrainer.__init__ = freeze
