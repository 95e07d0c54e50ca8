"""What the checks of chapter 19 must detect."""

from __future__ import annotations

from xpulab.chapters.shared.fault import FILES, fault, replace_in_file
from xpulab.records.environments import SUCCESSOR

LLAMA = f"{SUCCESSOR}.transformers.llama.modeling"
LORA = f"{SUCCESSOR}.peft.lora"
DPO = f"{SUCCESSOR}.nn.criterion.dpo_loss"


@fault("successor.logits", "successor.sft-losses", wraps=f"{LLAMA}:apply_rotary_pos_emb", smoke=("successor.logits",))
def positions_are_not_rotated(real, query, key, *given, **named):
    """Queries and keys keep no position: the successor's rotary embedding returns them as they are."""
    return query, key


@fault("successor.sft-losses", "successor.gradients", after=f"{SUCCESSOR}.nn.criterion.sft_loss:sft_postprocess_loss")
def loss_counted_one_and_a_half_times(result, self, *given, **named):
    """The mean over the labels is too large by half, and so are its gradients."""
    return tuple(1.5 * each for each in result)


@fault("successor.sft-losses", "successor.sft-steps", wraps="paddle.optimizer.adamw:AdamW.step")
def rate_of_adamw_is_doubled(real, self):
    """AdamW steps with twice the learning rate that it logs."""
    rate = self.get_lr()
    self._learning_rate = 2 * rate
    return real(self)


@fault("successor.lora", wraps=f"{LORA}.lora_layers:LoRALinear.get_delta_weight")
def merging_forgets_alpha(real, self, *given):
    """Merging adds A B without the scale, so a merged model answers as another one."""
    return real(self, *given) / self.scaling


@fault("successor.exercise-targets", wraps=f"{LORA}.lora_model:LoRAModel._find_and_replace_module")
def values_get_no_adapter(real, self, model, name, config, *given):
    """No adapter is added to the projection of the values."""
    return None if name.endswith("v_proj") else real(self, model, name, config, *given)


@fault("successor.dpo-first-losses", wraps=f"{DPO}:cal_dpo_loss")
def preferred_answer_is_exchanged(real, self, chosen, rejected, *given, **named):
    """The loss takes the policy's rejected answer for the chosen one."""
    return real(self, rejected, chosen, *given, **named)


@fault("successor.dpo-first-losses", "successor.exercise-ipo", after=f"{DPO}:cal_dpo_loss")
def preference_loss_is_halved(result, self, *given, **named):
    """The preference loss is half of what its formula says."""
    return 0.5 * result


@fault("successor.reads", "successor.damaged", wraps="paddle.distributed:load_state_dict")
def missing_names_are_no_error(real, *given, **named):
    """Paddle loads what a file has, and keeps random weights for the rest, without an error."""
    try:
        return real(*given, **named)
    except ValueError:
        return None


@fault("successor.resume", wraps="paddle.optimizer.optimizer:Optimizer.set_state_dict")
def moments_are_not_resumed(real, self, state):
    """A resumed run begins with moments of zero: the optimizer takes no state."""


@fault("successor.options", replaces=f"{SUCCESSOR}.trainer.training_args:TrainingArguments.__dataclass_fields__")
def an_option_has_another_name(real):
    """The release renamed an argument of training once more: tensor_model_parallel_size is gone."""
    return {name: value for name, value in real.items() if name != "tensor_model_parallel_size"}


@fault("successor.take-home", breaks=FILES)
def script_does_not_transpose():
    """The script to take home converts names only, and leaves linear weights as PaddleNLP stores them."""
    replace_in_file("data/take_home/successor.py", "np.ascontiguousarray(value.T)", "np.ascontiguousarray(value)")
