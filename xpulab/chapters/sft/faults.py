"""The faults of this chapter."""

from __future__ import annotations

import random

from xpulab.chapters.shared.fault import CELLS, FILES, calls, fault, np, paddle, replace_in_cells, replace_in_file

QWEN2 = "paddlenlp.transformers.qwen2.modeling"


@fault(
    "sft.loss-falls",
    "sft.rate-choice",
    "sft.every-weight-moves",
    "sft.trajectory",
    "sft.recall",
    "sft.new-wording",
    smoke=("sft.smoke-every-weight-moves",),
    wraps="paddle.optimizer:AdamW.step",
)
def optimizer_does_not_step(_real, self):
    """The optimizer's step does nothing."""


@fault("sft.smoke-loss-is-finite", smoke=("sft.smoke-loss-is-finite",), after=f"{QWEN2}:Qwen2PretrainingCriterion.forward")
def nan_loss_from_the_second_step(loss, self, *given):
    """The loss is NaN from the second step on."""
    return loss * (1.0 if next(calls) == 1 else float("nan"))


@fault("sft.gradients", wraps="paddle:Tensor.backward")
def doubled_gradients(backward, self, *given, **named):
    """Every gradient is twice as large, which AdamW hides from the loss."""
    return backward(self * 2, *given, **named)


@fault("sft.labels-are-the-next-token", "sft.recall", breaks=CELLS)
def labels_not_shifted() -> None:
    """The labels are not shifted by one, so the model learns to repeat the token that it reads."""
    replace_in_cells("[-100] * (len(asked) - 1) + answered + [-100]", "[-100] * len(asked) + answered")


@fault("sft.logits", "sft.gradients", "sft.evaluation", wraps=f"{QWEN2}:Qwen2Model._prepare_decoder_attention_mask")
def attention_mask_ignored(mask, attention_mask, *given):
    """The attention mask is ignored, so tokens attend to padding."""
    return mask(paddle.ones_like(attention_mask), *given)


@fault("sft.every-example-is-seen", breaks=CELLS)
def examples_left_out() -> None:
    """Every second example is never used."""
    replace_in_cells("return self.encoded[index]", "return self.encoded[index // 2 * 2]")


@fault("sft.schedule", wraps="paddle.optimizer.lr:LambdaDecay.get_lr")
def learning_rate_is_constant(_real, self):
    """The learning rate keeps its first value."""
    return self.base_lr


@fault("sft.repeat-losses", "sft.repeat-weights", after="paddlenlp.trainer.trainer:set_seed")
def order_of_the_data_is_not_seeded(_result, *given, **named):
    """The trainer's seed does not reach numpy, which draws the order of the data: it is another one in each run."""
    np.random.seed(random.SystemRandom().randrange(2**32))


@fault("sft.evaluation", wraps="paddlenlp.trl:SFTTrainer.evaluate")
def evaluates_the_training_set(evaluate, self, *given, **named):
    """evaluate() uses the training set."""
    return evaluate(self, self.train_dataset)


@fault("sft.saved", wraps="paddlenlp.transformers:PretrainedModel.save_pretrained")
def saved_in_bfloat16(save, self, *given, **named):
    """save_pretrained rounds the weights to bfloat16."""
    before = [weight.clone() for weight in self.parameters()]
    for weight in self.parameters():
        weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
    save(self, *given, **named)
    for weight, value in zip(self.parameters(), before, strict=True):
        weight.set_value(value)


@fault("device-proof.sft-places", lanes=("sim",), smoke=("sft.smoke-places",), breaks=CELLS)
def trains_on_the_cpu() -> None:
    """The model is on the CPU, whatever device is selected."""
    for end in ('from_pretrained(folder, dtype="float32")', 'from_pretrained(folder), dtype="float32")'):
        replace_in_cells(end, f'{end}.to("cpu")')


@fault("sft.shared-functions", breaks=CELLS)
def prompt_of_the_lesson_differs() -> None:
    """The lesson's prompt is another text than that of later chapters."""
    replace_in_cells("Question: {question}\\nAnswer:", "Q: {question}\\nA:")


@fault("sft.prompt-is-the-template", wraps="paddlenlp.transformers.tokenizer_utils:ChatTemplateMixin._apply_chat_template")
def template_does_not_begin_the_answer(render, self, conversation, add_generation_prompt=True):
    """A chat template leaves out the line that begins the answer."""
    return render(self, conversation, add_generation_prompt=False)


@fault("sft.take-home-code", breaks=FILES)
def script_does_not_shift_the_labels() -> None:
    """The script to take home does not shift the labels."""
    shifted, unshifted = "labels[:-1] = np.where(counts[1:], ids[1:], IGNORED)", "labels[:] = np.where(counts, ids, IGNORED)"
    replace_in_file("data/take_home/chat_data.py", shifted, unshifted)


@fault("sft.labels-are-the-answer", "sft.exercise-labels", breaks=CELLS)
def question_is_learned_too() -> None:
    """The labels of the question count as those of the answer do."""
    replace_in_cells("[-100] * (len(asked) - 1) + answered + [-100]", "asked[1:] + answered + [-100]")


@fault("sft.first-loss", "sft.exercise-first-loss", after=f"{QWEN2}:Qwen2PretrainedModel._init_weights")
def output_layer_starts_too_large(_result, self, layer):
    """The output layer's random weights ignore initializer_range: their standard deviation is 1."""
    if type(layer).__name__ == "Qwen2LMHead":
        layer.weight.set_value(layer.weight / self.config.initializer_range)


@fault("device-proof.sft-moments", wraps="paddle.optimizer:Optimizer.state_dict")
def second_moments_are_left_out(state_dict, self):
    """The optimizer's state_dict leaves the second moments out, so that a saved run goes on without them."""
    return {name: value for name, value in state_dict(self).items() if "moment2" not in name}


@fault("device-proof.sft-precision", wraps="paddle.optimizer:Optimizer.state_dict")
def moments_are_given_in_bfloat16(state_dict, self):
    """The optimizer's state_dict gives the moments in bfloat16."""
    return {name: value.astype("bfloat16") if "moment" in name else value for name, value in state_dict(self).items()}


@fault("device-proof.sft-no-fallback", wraps=f"{QWEN2}:apply_rotary_pos_emb", not_run="it compares on real cards only")
def rotary_positions_have_no_kernel_for_the_card(rotate, query, key, *given, **named):
    """Rotary positions call an operator that an XPU has no kernel for."""
    zero = 0 * paddle.nn.functional.log_sigmoid(query)
    query, key = rotate(query, key, *given, **named)
    return query + zero, key


@fault(
    "sft.baseline",
    wraps="paddle.optimizer:AdamW.step",
    not_run="it compares where a baseline of this machine was measured only",
)
def step_is_much_slower(step, self):
    """The optimizer copies each weight to the host 100 times in every step, which changes no value."""
    for weight in self._parameter_list:
        for _ in range(100):
            weight.numpy()
    step(self)


@fault("sft.loader-numbers", after="paddle.io.dataloader.worker:_generate_states")
def workers_share_their_random_numbers(_states, base_seed=0, worker_id=0):
    """Each worker of a loader is seeded with the same numbers."""
    return [1, 2, 3, 4]
