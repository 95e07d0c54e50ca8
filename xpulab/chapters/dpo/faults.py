"""The faults of this chapter."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

from xpulab.chapters.shared.fault import CELLS, FILES, fault, np, replace_in_cells, replace_in_file

EXCHANGED = ('pair["prompt"], pair["chosen"], pair["rejected"]', 'pair["prompt"], pair["rejected"], pair["chosen"]')
"""The line of encode() as it is, and with the answers exchanged."""


@fault("dpo.reference-is-frozen", after="paddlenlp.trl:DPOTrainer.get_batch_metrics")
def reference_model_trains(loss, self, ref_model, model, batch, train_eval="train"):
    """The reference model is updated together with the policy."""
    if ref_model is not None:
        for kept, moving in zip(ref_model.parameters(), model.parameters(), strict=False):
            kept.set_value(kept * 0.9 + moving * 0.1)


@fault(
    "dpo.margin",
    "dpo.accuracy",
    "dpo.first-gradients",
    "dpo.style",
    "dpo.scores",
    "dpo.loss",
    "dpo.evaluation",
    smoke=("dpo.smoke-loss", "dpo.smoke-training"),
    wraps="paddlenlp.trl:DPOCriterion.dpo_loss",
)
def margin_with_the_wrong_sign(loss, self, pi_chosen, pi_rejected, ref_chosen, ref_rejected):
    """The loss prefers the rejected answer."""
    return loss(self, pi_rejected, pi_chosen, ref_rejected, ref_chosen)


@fault("dpo.question-has-no-gradient", "dpo.packing", "dpo.log-probabilities", wraps="paddlenlp.trl:DPOCriterion.dpo_logps")
def question_is_learned(logps, self, logits, chosen, rejected, bounds, average_log_prob=False):
    """The tokens of the question count as part of both answers."""
    bounds = bounds.clone()
    bounds[:, 1] -= 2
    return logps(self, logits, chosen, rejected, bounds, average_log_prob)


@fault("dpo.packing", "dpo.first-gradients", after="paddlenlp.trl:preference_collate_fn")
def mask_only_causal(arrays, *given, **named):
    """The mask of the packed sequence is only causal, so the rejected answer sees the chosen one."""
    return {**arrays, "attention_mask": np.tril(np.ones_like(arrays["attention_mask"]))}


@fault(
    "dpo.own-loss",
    "dpo.first-gradients",
    "dpo.beta-limits",
    "dpo.exercise-beta",
    "dpo.exercise-ipo",
    wraps="paddlenlp.trl:DPOCriterion.dpo_loss",
)
def beta_ignored(loss, self, *logps):
    """The loss uses beta 1 instead of the configured value."""
    with mock.patch.object(self, "dpo_config", replace(self.dpo_config, beta=1.0)):
        return loss(self, *logps)


@fault("dpo.starts-at-ln-2", smoke=("dpo.smoke-first-loss",), wraps="paddlenlp.trl:DPOCriterion.dpo_loss")
def reference_ignored(loss, self, a, b, c, d):
    """The loss ignores the reference model."""
    return loss(self, a, b, 0 * c, 0 * d)


@fault("dpo.dropout", wraps="paddlenlp.trl.dpo_trainer:disable_dropout_in_model")
def dropout_stays_on(_real, model):
    """DPO accepts disable_dropout and switches no dropout off."""


@fault("dpo.dropout", breaks=FILES)
def dropout_searched_in_children_only() -> None:
    """without_dropout of the script misses dropout that is deeper than a child of the model."""
    replace_in_file("data/take_home/dpo.py", "for layer in model.sublayers():", "for layer in model.children():")


@fault("dpo.first-gradients", wraps="paddle:Tensor.backward")
def preference_gradients_doubled(backward, self, *given, **named):
    """Every gradient of preference training is twice as large."""
    return backward(self * 2, *given, **named)


@fault("dpo.packing", breaks=CELLS)
def answers_exchanged_in_the_data() -> None:
    """The data set exchanges chosen and rejected answers."""
    replace_in_cells(*EXCHANGED)


@fault("dpo.saved", breaks=CELLS)
def start_model_is_saved() -> None:
    """The start model is saved instead of the trained one."""
    replace_in_cells("policy.save_pretrained(folder)", "start_model.save_pretrained(folder)")


@fault("device-proof.dpo-places", lanes=("sim",), after="paddlenlp.trl:DPOTrainer.__init__")
def reference_on_the_cpu(_result, self, *given, **named):
    """The reference model stays on the CPU."""
    if self.ref_model is not None:
        self.ref_model.to("cpu")


@fault("dpo.sentences", wraps="paddlenlp.generation.utils:get_unfinished_flag")
def generation_does_not_stop(_real, input_ids, unfinished, *given):
    """Generation goes on after the end token."""
    return unfinished


@fault("dpo.loss-falls", after="paddlenlp.trl:DPOTrainer.__init__")
def policy_is_its_own_reference(_result, self, *given, **named):
    """The reference model is the policy itself, not a copy."""
    if self.ref_model is not None:
        self.ref_model = self.ref_model_wrapped = self.model


@fault("dpo.policy-moves", "device-proof.dpo-moments", wraps="paddle.optimizer:AdamW.__init__")
def optimizer_leaves_out_norms_and_biases(start, self, *given, parameters, **named):
    """The optimizer does not have the weights of norms and biases."""
    start(self, *given, parameters=[each for each in parameters if len(each.shape) > 1], **named)


@fault("dpo.take-home", breaks=FILES)
def script_exchanges_the_answers() -> None:
    """The script that a reader takes home exchanges chosen and rejected answers."""
    replace_in_file("data/take_home/dpo.py", *EXCHANGED)
