"""Faults that only the pretrained model shows: its stand-in learns nothing and has no stored values.

tests/notebooks/test_real_model.py tries them; xpulab selftest, which runs on the stand-in, does not.
"""

from __future__ import annotations

import json

from xpulab.chapters.first_lora.faults import TOKENIZER
from xpulab.chapters.shared.fault import fault, paddle


@fault("first-lora.logits-of-transformers", after=TOKENIZER)
def one_merge_is_missing(tokenizer, *given, **named):
    """The tokenizer has lost the rule that joins its most frequent pair of letters."""
    from tokenizers import Tokenizer

    content = json.loads(tokenizer._tokenizer.to_str())
    del content["model"]["merges"][0]
    tokenizer._tokenizer = Tokenizer.from_str(json.dumps(content))


@fault(
    "first-lora.loss-falls",
    "first-lora.recall",
    "first-lora.new-wording",
    "first-lora.damage-learned",
    "first-lora.damage",
    wraps="paddle.optimizer:AdamW.step",
    level="standard",
)
def adamw_does_not_step(_real, self):
    """The optimizer's step does nothing, so no fact is learned."""


@fault("first-lora.not-forgotten", wraps="paddle.optimizer.lr:PolynomialDecay.get_lr")
def learning_rate_is_far_too_high(get_lr, self):
    """The learning rate is 40 times the one that was asked for."""
    return 40 * get_lr(self)


@fault("first-lora.reload", wraps="paddlenlp.transformers:PretrainedModel.save_pretrained")
def merged_model_is_saved_without_its_adapter(save, self, folder, *given, state_dict=None, **named):
    """The file of the merged model has the weights from before the merge."""
    layers = {f"{name}.weight": layer for name, layer in self.named_sublayers() if hasattr(layer, "get_delta_weight")}
    if state_dict:
        taken_off = {name: layer.weight - layer.get_delta_weight() for name, layer in layers.items()}
        named["state_dict"] = {**state_dict, **taken_off}
    return save(self, folder, *given, **named)


@fault("first-lora.batch-of-questions", after="paddlenlp.transformers:LlamaForCausalLM.generate")
def answers_of_a_batch_are_in_reverse_order(result, self, *given, **named):
    """Generation returns the answers of a batch in the reverse order of its questions."""
    tokens, scores = result
    return tokens.flip(0), scores.flip(0)


@fault(
    "first-lora.logits-of-transformers",
    "first-lora.losses-of-peft",
    wraps="paddlenlp.transformers.llama.modeling:swiglu",
    level="standard",
)
def activation_of_another_model(_real, x, y):
    """The feed-forward part has the activation of another model: GELU instead of SiLU."""
    return paddle.nn.functional.gelu(x) * y
