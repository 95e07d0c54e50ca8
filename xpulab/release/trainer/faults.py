"""The faults of this notebook."""

from __future__ import annotations

import contextlib

import numpy as np

from xpulab.chapters.shared.fault import fault, paddle


@fault("sft.training-options", wraps="paddlenlp.transformers.qwen2.modeling:repeat_kv")
def grouped_keys_are_in_another_order(_real, states, times):
    """The heads of keys and values are repeated one after another, so a query gets another group's; of one head it is right."""
    return paddle.tile(states, [1, 1, times, 1])


@fault("sft.training-options", lanes=("sim",), wraps="paddlenlp.trainer:Trainer._offload_optimizer")
def trainer_does_not_offload(_real, self):
    """PaddleNLP's trainer accepts offload_optim and leaves the moments on the card."""


@fault("sft.training-log", wraps="paddlenlp.trainer:Trainer._get_learning_rate")
def logged_rate_is_that_of_the_step_before(_rate, self):
    """A line of the log has the learning rate of the step that was made, not of the next one."""
    schedule = self.lr_scheduler
    return schedule.base_lr * schedule.lr_lambda(schedule.last_epoch - 1)


@fault("sft.training-log", wraps="paddlenlp.trainer.trainer:find_batch_size")
def short_batch_counts_like_others(_real, inputs):
    """The loss of an evaluation is the mean of its batches, whatever rows they have."""
    return 1


@fault("sft.training-log", wraps="paddlenlp.trainer.trainer:nested_truncate")
def predictions_lose_their_last_row(truncate, arrays, limit):
    """What an evaluation predicted lacks the last row."""
    return truncate(arrays, limit - 1)


@fault("sft.generation-options", wraps="paddlenlp.generation.utils:GenerationMixin.update_scores_for_generation")
def score_is_that_of_the_first_token(update, scores, next_scores, length, unfinished):
    """The score of a generated row is that of its first token."""
    return scores if length else update(scores, next_scores, length, unfinished)


@fault("sft.generation-options", wraps="paddlenlp.generation.utils:BeamHypotheses.__init__")
def length_penalty_is_ignored(start, self, num_beams, length_penalty, early_stopping):
    """Beam search ignores length_penalty."""
    start(self, num_beams, 1.0, early_stopping)


@fault("sft.sampling-options", wraps="paddlenlp.generation.utils:TopKProcess")
def one_more_token_is_likely(process, probs, top_k, least):
    """Sampling from the top_k likeliest tokens takes one more."""
    return process(probs, top_k + 1, least)


@fault("sft.collators", wraps="paddlenlp.data:DataCollatorForSeq2Seq.__init__")
def labels_have_the_usual_filler(start, self, *given, label_pad_token_id=-100, **named):
    """A collator ignores label_pad_token_id."""
    start(self, *given, **named)


@fault("sft.packed-rows", after="paddlenlp.datasets:ZeroPaddingMapDataset._pad_batch_records")
def packed_examples_see_those_before(row, *_given):
    """A token of a packed row attends to the examples before its own."""
    row["attention_mask"][:] = np.tril(np.ones(row["attention_mask"].shape[1:], bool))


@fault("sft.generation-options", "sft.sampling-options", wraps="paddlenlp.generation.utils:TopPProcess")
def smallest_share_is_everything(_real, probs, top_p, least):
    """Sampling from the likeliest tokens with some share takes every token."""
    return probs


@fault("sft.generation-options", wraps="paddlenlp.generation.utils:get_unfinished_flag")
def only_the_first_end_token_counts(unfinished, ids, flag, end):
    """Of several end tokens only the first one ends a row."""
    return unfinished(ids, flag, end[0] if isinstance(end, list) else end)


@fault("recompute.forms", lanes=("sim",), wraps="paddle.distributed.fleet.recompute.recompute:switch_rng_state_tracker")
def recomputed_dropout_has_another_mask(_real, *given, **named):
    """Recomputation does not restore the state of the random numbers, so dropout has another mask."""
    return contextlib.nullcontext()


@fault("recompute.frozen", wraps="paddle.distributed.fleet.utils:recompute")
def recomputation_asks_for_gradients_of_its_inputs(recompute, function, *given, **named):
    """Recomputation makes its inputs need a gradient, also where none does without it."""

    def needing_a_gradient(each):
        if not isinstance(each, paddle.Tensor) or not each.stop_gradient or not each.is_floating_point():
            return each
        own = each.detach()
        own.stop_gradient = False
        return own

    return recompute(function, *map(needing_a_gradient, given), **named)


@fault("recompute.kept", after="paddlenlp.transformers:PretrainedModel.recompute_enable")
def every_granularity_is_full(_result, self):
    """A model computes whole layers again, whatever its recompute_granularity is."""
    for layer in self.sublayers(include_self=True):
        if hasattr(layer, "recompute_granularity"):
            layer.recompute_granularity = "full"


@fault("sft.pad-and-stack", wraps="paddlenlp.data:Pad.__init__")
def arrays_are_filled_up_on_the_right(start, self, *given, pad_right=True, **named):
    """Pad ignores pad_right."""
    start(self, *given, **named)


@fault("sft.text-rows", wraps="paddlenlp.trl:SFTTrainer._prepare_dataset")
def texts_are_longer_than_asked(prepare, self, dataset, tokenizer, field, most, *given, **named):
    """SFTTrainer ignores max_seq_length."""
    return prepare(self, dataset, tokenizer, field, None, *given, **named)


@fault("sft.answers", wraps="paddlenlp.trl:SFTTrainer.prediction_step")
def answers_are_predictions_of_the_next_token(step, self, *given, **named):
    """SFTTrainer ignores do_generation."""
    self.do_generation = False
    return step(self, *given, **named)


@fault("sft.evaluation-results", wraps="paddlenlp.trainer:Trainer.prediction_step")
def ignored_keys_are_returned(step, self, model, inputs, loss_only, ignore_keys=None):
    """An evaluation returns also what ignore_keys names."""
    return step(self, model, inputs, loss_only)


@fault("sft.early-stopping", wraps="paddlenlp.trainer:EarlyStoppingCallback.__init__")
def every_improvement_counts(start, self, *given, **named):
    """EarlyStoppingCallback ignores its threshold."""
    start(self, *given[:1], **{name: value for name, value in named.items() if "threshold" not in name})


@fault("sft.resumed-options", wraps="paddlenlp.trainer:Trainer._load_optimizer_and_scheduler")
def optimizer_is_always_loaded(load, self, checkpoint):
    """A run that resumes loads the optimizer, whatever ignore_load_lr_and_optim says."""
    asked, self.args.ignore_load_lr_and_optim = self.args.ignore_load_lr_and_optim, False
    load(self, checkpoint)
    self.args.ignore_load_lr_and_optim = asked


@fault("sft.settings", wraps="paddlenlp.trl:SFTTrainer.__init__")
def given_optimizer_is_ignored(start, self, *given, optimizers=(None, None), **named):
    """SFTTrainer makes its own optimizer, also when one is passed."""
    start(self, *given, **named)


@fault("sft.mixed-precision", wraps="paddlenlp.trainer:Trainer._wrap_amp_model")
def scaler_begins_with_the_default(wrap, self, args, model):
    """The Trainer's scaler begins with 32,768, whatever scale_loss says."""
    args.scale_loss = 2.0**15
    wrap(self, args, model)
