"""Faults that 02_lora must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("02_lora", detected_by=("lora.trainable-names", "lora.base-is-frozen", "lora.gradients-only-there"))
def base_weights_train() -> None:
    """Norms of the base model train along with the adapter."""
    from paddlenlp.peft import LoRAModel

    mark = LoRAModel.mark_only_lora_as_trainable

    def mark_too_much(self):
        mark(self)
        for name, weight in self.model.named_parameters():
            if "layernorm" in name:
                weight.stop_gradient = False

    LoRAModel.mark_only_lora_as_trainable = mark_too_much


@fault("02_lora", detected_by=("lora.merge",))
def merge_forgets_the_scale() -> None:
    """Merging adds the adapter without its scale."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    delta = LoRALinear.get_delta_weight
    LoRALinear.get_delta_weight = lambda self, *given: delta(self, *given) / self.scaling


@fault("02_lora", detected_by=("lora.starts-as-the-base",))
def adapter_starts_elsewhere() -> None:
    """The adapter's second matrix does not start at zero."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def stirred(self, *given, **named):
        start(self, *given, **named)
        self.lora_B.set_value(self.lora_B + 1e-3)

    LoRALinear.__init__ = stirred


@fault("02_lora", detected_by=("lora.unmerge",))
def unmerge_does_nothing() -> None:
    """Unmerging leaves the merged weights in place."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    def unmerge(self):
        self.merged = False

    LoRALinear.unmerge = unmerge


@fault("02_lora", detected_by=("lora.reload",))
def adapter_is_not_loaded() -> None:
    """Loading an adapter leaves a fresh one in place."""
    from paddlenlp.peft import LoRAModel

    LoRAModel.set_state_dict = lambda self, weights: None


@fault("02_lora", detected_by=("lora.trainable-names", "lora.trainable-size"))
def one_matrix_does_not_train() -> None:
    """The adapter's first matrices stay as they were drawn."""
    from paddlenlp.peft import LoRAModel

    mark = LoRAModel.mark_only_lora_as_trainable

    def mark_half(self):
        mark(self)
        for name, weight in self.model.named_parameters():
            if "lora_A" in name:
                weight.stop_gradient = True

    LoRAModel.mark_only_lora_as_trainable = mark_half


@fault("02_lora", detected_by=("lora.formula",))
def scale_of_another_variant() -> None:
    """The adapter is scaled by alpha over the root of the rank."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def rescaled(self, *given, **named):
        start(self, *given, **named)
        self.scaling = self.lora_alpha / self.r**0.5

    LoRALinear.__init__ = rescaled


@fault("02_lora", detected_by=("lora.variants-scale",))
def rslora_scaled_like_lora() -> None:
    """RsLoRA is scaled by alpha over the rank."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "rslora": False})

    LoRALinear.__init__ = without


@fault("02_lora", detected_by=("lora.plus-rate",))
def lora_plus_is_plain() -> None:
    """In LoRA+ the matrices B learn no faster than A."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "lora_plus_scale": 1.0})

    LoRALinear.__init__ = without


@fault("02_lora", detected_by=("lora.variants-start",))
def pissa_counts_twice() -> None:
    """PiSSA leaves in the weight what it puts into the adapter."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    initialise = LoRALinear.pissa_init

    def without_residual(self, rank):
        weight = self.weight.clone()
        initialise(self, rank)
        self.weight.set_value(weight)

    LoRALinear.pissa_init = without_residual


@fault("02_lora", detected_by=("lora.pissa-start",))
def pissa_is_plain() -> None:
    """PiSSA starts from random numbers, like LoRA."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    start = LoRALinear.__init__

    def without(self, *given, **named):
        start(self, *given, **{**named, "pissa": False})

    LoRALinear.__init__ = without


@fault("02_lora", detected_by=("lora.pissa-loaded-late",))
def pissa_starts_again_when_loaded() -> None:
    """PiSSA initialises itself once more after loading, also when a first pass has been made: the way round is closed."""
    from paddlenlp.peft import LoRAModel

    load = LoRAModel.set_state_dict

    def load_and_forget(self, weights):
        load(self, weights)
        for layer in self.model.sublayers():
            if getattr(layer, "pissa", False):
                layer.apply_pissa = False

    LoRAModel.set_state_dict = load_and_forget


@fault("02_lora", detected_by=("lora.variants-reload",))
def mora_loads_transposed() -> None:
    """A MoRA adapter is loaded transposed, so that serving it unmerged is no way round its merge."""
    from paddlenlp.peft import LoRAModel

    load = LoRAModel.set_state_dict

    def turned(self, weights):
        square = {name: value for name, value in weights.items() if len(value.shape) == 2 and value.shape[0] == value.shape[1]}
        load(self, {**weights, **{name: value.T for name, value in square.items()}})

    LoRAModel.set_state_dict = turned


@fault("02_lora", detected_by=("lora.merge",))
def merged_twice() -> None:
    """Merging what is merged already adds the adapter once more."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    def merge(self):
        self.weight.set_value(self.weight + self.get_delta_weight())
        self.merged = True

    LoRALinear.merge = merge


@fault("02_lora", device="sim", detected_by=("device-proof.lora-places",))
def adapter_trains_on_the_cpu() -> None:
    """Model and adapter are on the CPU, whatever device was asked for."""
    from xpulab.notebook import models

    new = models.new_model
    models.new_model = lambda *given: new(*given).to("cpu")
