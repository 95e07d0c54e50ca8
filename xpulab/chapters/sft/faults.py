"""The faults of this chapter."""

from __future__ import annotations

import json
import random
from pathlib import Path

from xpulab.chapters.shared.fault import CELLS, FILES, calls, fault, np, paddle, replace_in_cells, replace_in_file

QWEN2 = "paddlenlp.transformers.qwen2.modeling"


@fault(
    detected_by=(
        "sft.loss-falls",
        "sft.rate-choice",
        "sft.every-weight-moves",
        "sft.trajectory",
        "sft.recall",
        "sft.new-wording",
        "sft.held-out-loss",
    ),
    smoke=("sft.smoke-every-weight-moves",),
    wraps="paddle.optimizer:AdamW.step",
)
def optimizer_does_not_step(_real, self):
    """The optimizer's step does nothing."""


@fault(reason_contains="nan", detected_by=("sft.loss-falls", "sft.recall"), wraps=f"{QWEN2}:Qwen2PretrainingCriterion.forward")
def nan_loss_stops_training(forward, self, *given):
    """The loss is NaN; PaddleNLP's own Trainer raises an error."""
    return forward(self, *given) * float("nan")


@fault(
    detected_by=("sft.smoke-loss-is-finite",),
    smoke=("sft.smoke-loss-is-finite",),
    after=f"{QWEN2}:Qwen2PretrainingCriterion.forward",
)
def nan_loss_from_the_second_step(loss, self, *given):
    """The loss is NaN from the second step on."""
    return loss * (1.0 if next(calls) == 1 else float("nan"))


@fault(
    detected_by=("sft.loss-falls", "sft.gradients", "sft.logits"),
    smoke=("sft.smoke-every-weight-moves",),
    wraps=f"{QWEN2}:Qwen2LMHead.forward",
)
def nan_logits(forward, self, *given, **named):
    """The logits are NaN; on the CPU their cross entropy is still ln V, so the loss is finite and constant."""
    return forward(self, *given, **named) * float("nan")


@fault(detected_by=("sft.gradients",), wraps="paddle:Tensor.backward")
def doubled_gradients(backward, self, *given, **named):
    """Every gradient is twice as large, which AdamW hides from the loss."""
    return backward(self * 2, *given, **named)


@fault(detected_by=("sft.labels-are-the-next-token", "sft.recall"), breaks=CELLS)
def labels_not_shifted() -> None:
    """The labels are not shifted by one, so the model learns to repeat the token that it reads."""
    replace_in_cells("[-100] * (len(asked) - 1) + answered + [-100]", "[-100] * len(asked) + answered")


@fault(
    detected_by=("sft.attention-mask", "sft.logits", "sft.padding"), wraps=f"{QWEN2}:Qwen2Model._prepare_decoder_attention_mask"
)
def attention_mask_ignored(mask, attention_mask, *given):
    """The attention mask is ignored, so tokens attend to padding."""
    return mask(paddle.ones_like(attention_mask), *given)


@fault(detected_by=("sft.every-example-is-seen",), breaks=CELLS)
def examples_left_out() -> None:
    """Every second example is never used."""
    replace_in_cells("return self.encoded[index]", "return self.encoded[index // 2 * 2]")


@fault(detected_by=("sft.schedule",), wraps="paddle.optimizer.lr:LambdaDecay.get_lr")
def learning_rate_is_constant(_real, self):
    """The learning rate keeps its first value."""
    return self.base_lr


@fault(detected_by=("sft.trajectory",), wraps="paddle.optimizer:AdamW.__init__")
def no_momentum(start, self, *given, **named):
    """The optimizer keeps no momentum."""
    start(self, *given, **{**named, "beta1": 0.0})


@fault(detected_by=("sft.trajectory",), wraps="paddle.nn:ClipGradByGlobalNorm.__call__")
def gradients_not_clipped(_real, self, pairs):
    """Gradients are not clipped to the largest norm that is allowed."""
    return pairs


@fault(detected_by=("sft.repeat-losses", "sft.repeat-weights"), wraps="paddle.optimizer:AdamW.step")
def gradients_differ_between_runs(step, self):
    """Gradients have a small random error, another one in each run."""
    for weight in self._parameter_list:
        if weight.grad is not None:
            weight.grad.set_value(weight.grad * (1 + 1e-4 * random.SystemRandom().random()))
    step(self)


@fault(detected_by=("sft.gradients", "sft.logits"), wraps="paddle.nn.functional:linear")
def linear_layers_in_bfloat16(linear, x, weight, bias=None, name=None):
    """Linear layers round their inputs and weights to bfloat16."""
    return linear(*(each.astype("bfloat16").astype(x.dtype) for each in (x, weight)), bias)


@fault(detected_by=("sft.logits", "sft.gradients"), wraps=f"{QWEN2}:Qwen2RotaryEmbedding.__init__")
def rotary_positions_with_another_base(start, self, dim, max_position_embeddings=2048, base=10000):
    """Rotary positions use another base frequency."""
    start(self, dim, max_position_embeddings, base / 10)


@fault(detected_by=("sft.evaluation",), wraps="paddlenlp.trl:SFTTrainer.evaluate")
def evaluates_the_training_set(evaluate, self, *given, **named):
    """evaluate() uses the training set."""
    return evaluate(self, self.train_dataset)


@fault(detected_by=("sft.saved",), wraps="paddlenlp.transformers:PretrainedModel.save_pretrained")
def saved_in_bfloat16(save, self, *given, **named):
    """save_pretrained rounds the weights to bfloat16."""
    before = [weight.clone() for weight in self.parameters()]
    for weight in self.parameters():
        weight.set_value(weight.astype("bfloat16").astype(weight.dtype))
    save(self, *given, **named)
    for weight, value in zip(self.parameters(), before, strict=True):
        weight.set_value(value)


@fault(device="sim", detected_by=("device-proof.sft-places",), smoke=("sft.smoke-places",), breaks=CELLS)
def trains_on_the_cpu() -> None:
    """The model is on the CPU, whatever device is selected."""
    for end in ('from_pretrained(folder, dtype="float32")', 'from_pretrained(folder), dtype="float32")'):
        replace_in_cells(end, f'{end}.to("cpu")')


@fault(detected_by=("sft.training-options",), wraps="paddle.optimizer:AdamW.__init__")
def no_weight_decay(begin, self, *given, **named):
    """Weight decay is ignored."""
    return begin(self, *given, **{**named, "weight_decay": 0.0})


@fault(detected_by=("sft.training-options",), also_on=("sim",), wraps="paddle.optimizer:AdamW.__init__")
def decay_on_norms(begin, self, *given, **named):
    """Weight decay applies to norms and biases too."""
    begin(self, *given, **{**named, "apply_decay_param_fun": lambda name: True})


@fault(
    detected_by=("sft.shuffled",),
    wraps=(
        "paddle.io:BatchSampler.__init__",
        "paddle.io:DistributedBatchSampler.__init__",
        "paddlenlp.utils.batch_sampler:DistributedBatchSampler.__init__",
    ),
)
def not_shuffled(begin, self, *given, **named):
    """The training examples are never shuffled."""
    begin(self, *given, **{**named, "shuffle": False})


@fault(detected_by=("device-proof.sft-bits",), after="paddle.optimizer:AdamW.step")
def moments_in_bfloat16(_result, self):
    """The optimizer's moments are rounded to bfloat16."""
    for kind, of_each in self._accumulators.items():
        for value in of_each.values() if "moment" in kind else ():
            value.set_value(value.astype("bfloat16").astype("float32"))


@fault(detected_by=("sft.shuffled",), wraps="paddle.io:RandomSampler.__iter__")
def same_order_in_every_epoch(draw, self):
    """Every epoch has the order of the first."""
    self.drawn = getattr(self, "drawn", None) or list(draw(self))
    return iter(self.drawn)


@fault(detected_by=("sft.padding",), wraps="paddlenlp.data:DataCollatorForSeq2Seq.__call__")
def labels_of_padding_count(collate, self, *given, **named):
    """The labels of padding are the padding token, so the model learns padding too."""
    self.label_pad_token_id = self.tokenizer.pad_token_id
    return collate(self, *given, **named)


@fault(
    detected_by=("sft.cached-positions", "sft.generation-options"),
    after="paddlenlp.transformers:Qwen2ForCausalLM.prepare_inputs_for_generation",
)
def cached_steps_have_position_0(inputs, self, *given, past_key_values=None, **named):
    """Every cached step of a generation has position 0."""
    return {**inputs, "position_ids": None} if past_key_values else inputs


@fault(detected_by=("sft.training-options",), wraps="paddlenlp.trl:SFTTrainer.compute_loss")
def accumulated_gradients_are_summed(loss_of, self, *given, **named):
    """The gradients of accumulated batches are added up, not averaged."""
    return loss_of(self, *given, **named) * self.args.gradient_accumulation_steps


@fault(detected_by=("sft.shared-functions",), breaks=CELLS)
def prompt_of_the_lesson_differs() -> None:
    """The lesson's prompt is another text than that of later chapters."""
    replace_in_cells("Question: {question}\\nAnswer:", "Q: {question}\\nA:")


@fault(
    detected_by=("sft.prompt-is-the-template",),
    wraps="paddlenlp.transformers.tokenizer_utils:ChatTemplateMixin._apply_chat_template",
)
def template_does_not_begin_the_answer(render, self, conversation, add_generation_prompt=True):
    """A chat template leaves out the line that begins the answer."""
    return render(self, conversation, add_generation_prompt=False)


@fault(detected_by=("sft.take-home-code",), breaks=FILES)
def script_does_not_shift_the_labels() -> None:
    """The script to take home does not shift the labels."""
    shifted, unshifted = "[-100] * (len(asked) - 1) + answered + [-100]", "[-100] * len(asked) + answered"
    replace_in_file("data/take_home/sft.py", shifted, unshifted)


@fault(detected_by=("sft.labels-are-the-answer", "sft.exercise-labels"), breaks=CELLS)
def question_is_learned_too() -> None:
    """The labels of the question count as those of the answer do."""
    replace_in_cells("[-100] * (len(asked) - 1) + answered + [-100]", "asked[1:] + answered + [-100]")


@fault(detected_by=("sft.saved-answers",), after="paddlenlp.transformers:PretrainedModel.save_pretrained")
def config_is_saved_with_another_base(_result, self, folder, *given, **named):
    """The saved config has another base of the rotary positions; the saved weights are right."""
    path = Path(folder) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rope_theta": 100.0}))


@fault(detected_by=("sft.first-loss", "sft.exercise-first-loss"), after=f"{QWEN2}:Qwen2PretrainedModel._init_weights")
def output_layer_starts_too_large(_result, self, layer):
    """The output layer's random weights ignore initializer_range: their standard deviation is 1."""
    if type(layer).__name__ == "Qwen2LMHead":
        layer.weight.set_value(layer.weight / self.config.initializer_range)


@fault(detected_by=("sft.loss-is-finite",), wraps="paddlenlp.trainer:Trainer.log")
def logged_loss_overflows(log, self, logs, *given, **named):
    """The loss of the fifth step overflows when it is logged; the training goes on with the right one."""
    if "loss" in logs and self.state.global_step == 5:
        logs = {**logs, "loss": float("inf")}
    return log(self, logs, *given, **named)


@fault(detected_by=("device-proof.sft-moments",), wraps="paddle.optimizer:Optimizer.state_dict")
def second_moments_are_left_out(state_dict, self):
    """The optimizer's state_dict leaves the second moments out, so that a saved run goes on without them."""
    return {name: value for name, value in state_dict(self).items() if "moment2" not in name}


@fault(detected_by=("device-proof.sft-precision",), wraps="paddle.optimizer:Optimizer.state_dict")
def moments_are_given_in_bfloat16(state_dict, self):
    """The optimizer's state_dict gives the moments in bfloat16."""
    return {name: value.astype("bfloat16") if "moment" in name else value for name, value in state_dict(self).items()}


@fault(
    detected_by=("device-proof.sft-no-fallback",),
    wraps=f"{QWEN2}:apply_rotary_pos_emb",
    not_run="it compares on real cards only",
)
def rotary_positions_have_no_kernel_for_the_card(rotate, query, key, *given, **named):
    """Rotary positions call an operator that an XPU has no kernel for."""
    zero = 0 * paddle.nn.functional.log_sigmoid(query)
    query, key = rotate(query, key, *given, **named)
    return query + zero, key


@fault(
    detected_by=("sft.baseline",),
    wraps="paddle.optimizer:AdamW.step",
    not_run="it compares where a baseline of this machine was measured only",
)
def step_is_much_slower(step, self):
    """The optimizer copies each weight to the host 100 times in every step, which changes no value."""
    for weight in self._parameter_list:
        for _ in range(100):
            weight.numpy()
    step(self)


@fault(detected_by=("sft.training-options",), wraps=f"{QWEN2}:Qwen2LMHead.forward")
def gradient_of_a_tied_head_is_lost(forward, self, hidden_states, *given, **named):
    """A head that is tied to the embedding gives its weight no gradient."""
    if not self.config.tie_word_embeddings:
        return forward(self, hidden_states, *given, **named)
    return paddle.matmul(hidden_states, self.weight.detach(), transpose_y=True)


@fault(detected_by=("sft.training-options",), wraps=f"{QWEN2}:repeat_kv")
def grouped_keys_are_in_another_order(_real, states, times):
    """The heads of keys and values are repeated one after another, so a query gets another group's; of one head it is right."""
    return paddle.tile(states, [1, 1, times, 1])


@fault(detected_by=("sft.training-options",), after="paddle.optimizer:AdamW.step")
def frozen_weights_are_decayed(_result, self):
    """A weight that does not train is decayed."""
    for weight in self._parameter_list:
        if weight.stop_gradient:
            weight.set_value(weight * 0.99)


@fault(detected_by=("sft.training-options",), wraps=f"{QWEN2}:recompute")
def recomputation_drops_the_gradient_of_its_input(again, function, hidden_states, *given, **named):
    """A part that is computed again gives its input no gradient, so the layers before it do not train."""
    return again(function, hidden_states.detach(), *given, **named)


@fault(detected_by=("sft.training-options",), wraps="paddle.nn:Layer.train")
def model_stays_in_evaluation_mode(train, self):
    """After an evaluation the model stays in evaluation mode."""
    if self.training:
        train(self)


@fault(detected_by=("sft.training-options",), after="paddlenlp.trainer:Trainer.create_optimizer")
def layers_from_the_tenth_are_not_decayed(optimizer, self, *given):
    """Weight decay finds the layers by a pattern of one digit, and leaves out layers from the tenth on."""
    decays = optimizer._apply_decay_param_fun
    late = {weight.name for name, weight in self.model.named_parameters() if ".layers.1" in name and ".layers.1." not in name}
    optimizer._apply_decay_param_fun = lambda name: decays(name) and name not in late


@fault(detected_by=("sft.training-options",), after="paddlenlp.datasets.zero_padding_dataset:ZeroPadding._pad_batch_records")
def examples_of_a_pack_see_each_other(packed, *given):
    """An example in a packed row attends to the examples before it."""
    length = len(packed["input_ids"])
    return {**packed, "attention_mask": np.tril(np.ones((1, length, length), bool))}


@fault(detected_by=("sft.training-options",), wraps="paddlenlp.transformers.llama.modeling:LlamaRotaryEmbedding.__init__")
def rotary_positions_of_llama_with_another_base(start, self, dim, max_position_embeddings=2048, base=10000):
    """Rotary positions of Llama use another base frequency."""
    start(self, dim, max_position_embeddings, base / 10)


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.optimizer:Momentum.__init__")
def nesterov_is_plain_momentum(start, self, *given, use_nesterov=False, **named):
    """Momentum ignores use_nesterov."""
    start(self, *given, **named)


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.nn:ClipGradByValue.__init__")
def values_are_clipped_alike_on_both_sides(start, self, max, min=None):
    """Clipping by value ignores the lower bound and takes the upper one with the other sign."""
    start(self, max)


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.nn:ClipGradByGlobalNorm.__call__")
def small_gradients_are_enlarged_to_the_norm(clip, self, pairs):
    """Clipping by the global norm gives every gradient the largest norm, also where the norm is smaller."""
    norm = float(sum((gradient.astype("float64") ** 2).sum() for _, gradient in pairs)) ** 0.5
    return (
        clip(self, pairs) if norm > self.clip_norm else [(weight, slope * (self.clip_norm / norm)) for weight, slope in pairs]
    )


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.regularizer:L1Decay.__call__")
def l1_decay_is_l2_decay(_real, self, *given):
    """L1Decay adds the weight, as L2Decay does, not its sign."""
    return paddle.regularizer.L2Decay(self._coeff)(*given)


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.optimizer:Optimizer._add_param_group")
def groups_have_the_rate_of_the_optimizer(add, self, group):
    """A group of weights ignores its own learning rate."""
    add(self, {name: value for name, value in group.items() if name != "learning_rate"})


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.nn:ClipGradByGlobalNorm.__call__")
def weights_that_must_not_be_clipped_are(clip, self, pairs):
    """Clipping by the global norm ignores need_clip."""
    for weight, _ in pairs:
        weight.need_clip = True
    return clip(self, pairs)


@fault(detected_by=("sft.optimizer-options",), wraps="paddle.optimizer:Optimizer.set_lr")
def rate_that_is_set_in_between_is_ignored(_real, self, rate):
    """set_lr has no effect."""


@fault(detected_by=("sft.optimizer-options",), device="sim", wraps="paddle.amp:GradScaler.step")
def gradients_are_clipped_before_they_are_divided(step, self, optimizer):
    """Gradients are clipped while they are still multiplied by the factor of the scaler."""
    clip = optimizer._grad_clip
    if clip is None or not self.is_enable():
        return step(self, optimizer)
    weights = [weight for weight in optimizer._parameter_list if weight.grad is not None]
    for weight, gradient in clip([(weight, weight.grad) for weight in weights]):
        weight.grad.set_value(gradient)
    optimizer._grad_clip = None
    try:
        return step(self, optimizer)
    finally:
        optimizer._grad_clip = clip


_PREPARE = tuple(f"paddlenlp.transformers:{family}ForCausalLM.prepare_inputs_for_generation" for family in ("Qwen2", "Llama"))


@fault(detected_by=("sft.generation-options",), after=_PREPARE)
def caches_are_in_the_order_of_their_names(inputs, self, *given, **named):
    """A model with more than ten layers gives the cached keys of layer 10 to layer 2, as names are sorted."""
    cached = inputs.get("past_key_values")
    if not cached or len(cached) < 11:
        return inputs
    order = sorted(range(len(cached)), key=str)
    return {**inputs, "past_key_values": tuple(cached[number] for number in order)}


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.transformers.qwen2.modeling:repeat_kv")
def heads_share_keys_in_turns(repeat, hidden, n_rep):
    """Groups of heads take the keys in turns, and not those of their group, when one query comes with cached keys."""
    result = repeat(hidden, n_rep)
    return hidden.tile([1, 1, n_rep, 1]) if n_rep > 1 and hidden.shape[1] > 7 else result


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:GenerationMixin.generate")
def generation_reads_the_padding(generate, self, input_ids, attention_mask=None, **named):
    """Generation reads the padding of a batch as if it were text of its shorter prompts."""
    import paddle

    mask = paddle.ones_like(attention_mask) if attention_mask is not None else None
    return generate(self, input_ids, attention_mask=mask, **named)


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:TopKProcess")
def sampling_takes_one_more(keep, probs, top_k, least):
    """Sampling from the k likeliest tokens takes the next one instead of the first."""
    import paddle

    return keep(probs - paddle.nn.functional.one_hot(probs.argmax(-1), probs.shape[-1]) * probs, top_k, least)


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:TopPProcess")
def smallest_share_is_everything(_real, probs, top_p, least):
    """Sampling from the likeliest tokens with some share takes every token."""
    return probs


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:get_unfinished_flag")
def end_of_one_row_ends_all(unfinished, ids, flag, end):
    """The end token in one row ends every row."""
    left = unfinished(ids, flag, end)
    return left & left.all()


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.utils:get_unfinished_flag")
def only_the_first_end_token_counts(unfinished, ids, flag, end):
    """Of several end tokens only the first one ends a row."""
    return unfinished(ids, flag, end[0] if isinstance(end, list) else end)


@fault(detected_by=("sft.generation-options",), wraps="paddlenlp.generation.logits_process:MinLengthLogitsProcessor.__call__")
def least_tokens_count_the_prompt(_real, self, input_ids, logits):
    """The least number of new tokens is taken for that of prompt and new tokens together."""
    return logits


@fault(
    detected_by=("sft.generation-options",),
    wraps="paddlenlp.generation.logits_process:RepetitionPenaltyLogitsProcessor.__call__",
)
def penalty_sees_the_last_token_only(penalize, self, ids, logits):
    """The penalty of repeated tokens concerns the last token only."""
    return penalize(self, ids[:, -1:], logits)
