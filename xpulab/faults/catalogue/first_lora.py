"""Faults that 01_first_lora must detect. The stand-in of the pretrained model shows them too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xpulab.faults.fault import fault


@fault("01_first_lora", detected_by=("first-lora.logits",))
def base_of_the_rotary_embedding_is_lost() -> None:
    """The rotary embedding has the default base, not that of the model's config."""
    from paddlenlp.transformers.llama.modeling import LlamaRotaryEmbedding

    start = LlamaRotaryEmbedding.__init__

    def with_default(self, dim, max_position_embeddings=2048, base=10000):
        start(self, dim, max_position_embeddings, 10000)

    LlamaRotaryEmbedding.__init__ = with_default


@fault("01_first_lora", detected_by=("first-lora.tied",))
def tied_embeddings_are_untied() -> None:
    """After loading, the output layer is a copy of the embedding, and one of its numbers is another."""
    _after_loading(_untie)


@fault("01_first_lora", detected_by=("first-lora.weights-of-the-files",), also_on=("sim",))
def one_weight_is_left_random() -> None:
    """One weight of the model is not loaded and keeps its random numbers."""
    _after_loading(_randomize)


@fault("01_first_lora", detected_by=("first-lora.labels",), reason_contains="does not end an answer in eos_token")
def wrong_end_token() -> None:
    """The tokenizer's end token is not the one that ends a turn."""
    after_loading_a_tokenizer(lambda tokenizer: setattr(tokenizer, "eos_token", "<|im_start|>"))


@fault("01_first_lora", detected_by=("first-lora.turns",), smoke=("first-lora.turns",))
def template_without_the_system_turn() -> None:
    """The chat template leaves the system turn out."""
    after_loading_a_tokenizer(_drop_the_system_turn)


@fault("01_first_lora", detected_by=("first-lora.merged-weights",))
def adapter_is_merged_twice() -> None:
    """Merging adds the adapter twice."""
    from paddlenlp.peft.lora.lora_layers import LoRALinear

    delta = LoRALinear.get_delta_weight
    LoRALinear.get_delta_weight = lambda self, *given: 2 * delta(self, *given)


@fault("01_first_lora", detected_by=("first-lora.adapter-layers",))
def adapter_on_the_attention_only() -> None:
    """The layers of the feed-forward part get no adapter."""
    from paddlenlp.peft import LoRAConfig

    start = LoRAConfig.__post_init__

    def attention_only(self):
        start(self)
        self.target_modules = [target for target in self.target_modules if "self_attn" in target or target[2] in "qkvo"]

    LoRAConfig.__post_init__ = attention_only


@fault("01_first_lora", detected_by=("first-lora.adapter-layers", "first-lora.others-unchanged"))
def norms_train_too() -> None:
    """The norms beside the adapter train too."""
    from paddlenlp.peft import LoRAModel

    mark = LoRAModel.mark_only_lora_as_trainable

    def mark_too_much(self):
        mark(self)
        for name, weight in self.model.named_parameters():
            if "_layernorm" in name:
                weight.stop_gradient = False

    LoRAModel.mark_only_lora_as_trainable = mark_too_much


@fault("01_first_lora", detected_by=("first-lora.bf16-file",))
def bf16_loses_bits() -> None:
    """A cast to bf16 cuts the last bits off instead of rounding."""
    import numpy as np
    import paddle

    cast = paddle.Tensor.astype

    def cut(self, dtype):
        if dtype == "bfloat16" and self.dtype == paddle.float32:
            bits = self.numpy().view(np.uint32) & np.uint32(0xFFFF0000)
            return cast(paddle.to_tensor(bits.view(np.float32)), dtype)
        return cast(self, dtype)

    paddle.Tensor.astype = cut


@fault("01_first_lora", detected_by=("first-lora.merged-file", "first-lora.merged-loaded"))
def merged_model_is_saved_with_one_old_weight() -> None:
    """The file of the merged model has one weight from before the merge."""
    from paddlenlp.transformers import PretrainedModel

    save = PretrainedModel.save_pretrained

    def save_an_old_one(self, folder, *given, state_dict=None, **named):
        if state_dict and any("q_proj" in name for name in state_dict):
            name = min(name for name in state_dict if "q_proj" in name)
            state_dict = {**state_dict, name: state_dict[name] * 0.5}
        return save(self, folder, *given, **({"state_dict": state_dict} if state_dict else {}), **named)

    PretrainedModel.save_pretrained = save_an_old_one


@fault("01_first_lora", detected_by=("first-lora.padding",))
def padding_is_visible() -> None:
    """Attention sees the padding."""
    from paddlenlp.transformers import LlamaForCausalLM

    forward = LlamaForCausalLM.forward

    def without_mask(self, *given, attention_mask=None, **named):
        return forward(self, *given, **named)

    LlamaForCausalLM.forward = without_mask


def _after_loading(change) -> None:
    """Call `change` with each model that AutoModelForCausalLM has loaded."""
    from paddlenlp.transformers import LlamaForCausalLM

    load = LlamaForCausalLM.from_pretrained.__func__

    def loaded(cls, *given, **named):
        network = load(cls, *given, **named)
        change(network)
        return network

    LlamaForCausalLM.from_pretrained = classmethod(loaded)


def _untie(network) -> None:
    import paddle

    table = network.lm_head.weight.numpy().copy()
    table.flat[7] += 0.25
    own = paddle.create_parameter(list(table.shape), "float32")
    own.set_value(table)
    network.lm_head.weight = own


def _randomize(network) -> None:
    import paddle

    weight = next(weight for name, weight in network.named_parameters() if name.endswith("up_proj.weight"))
    paddle.seed(11)
    weight.set_value(paddle.randn(weight.shape) * float(weight.std()))


def after_loading_a_tokenizer(change: Callable[[Any], None]) -> None:
    """Call `change` with each tokenizer that AutoTokenizer has loaded."""
    from paddlenlp.transformers import AutoTokenizer

    load = AutoTokenizer.from_pretrained.__func__

    def loaded(cls, *given, **named):
        tokenizer = load(cls, *given, **named)
        change(tokenizer)
        return tokenizer

    AutoTokenizer.from_pretrained = classmethod(loaded)


def _drop_the_system_turn(tokenizer) -> None:
    apply = tokenizer.apply_chat_template

    def without_system(*given, **named):
        text = apply(*given, **named)
        return text[text.index("<|im_start|>user") :]

    tokenizer.apply_chat_template = without_system
