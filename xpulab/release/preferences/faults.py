"""The faults of this notebook."""

from __future__ import annotations

from dataclasses import replace

from xpulab.chapters.shared.fault import fault


@fault("dpo.kto-options", "dpo.kto-training", wraps="paddlenlp.trl:KTOCriterion.__init__")
def kto_weights_exchanged(start, self, config, kto_config=None, **named):
    """KTO exchanges the weights of desirable and undesirable answers."""
    up, down = kto_config.desirable_weight, kto_config.undesirable_weight
    start(self, config, kto_config=replace(kto_config, desirable_weight=down, undesirable_weight=up), **named)


@fault("dpo.loss-options", wraps="paddlenlp.trl:DPOCriterion.__init__", lanes=("sim",))
def label_smoothing_ignored(start, self, config, dpo_config=None, **named):
    """The loss ignores label smoothing."""
    start(self, config, dpo_config=replace(dpo_config, label_smoothing=0.0), **named)


@fault("dpo.loss-options", wraps="paddlenlp.trl:DPOCriterion.__init__")
def preference_share_and_constants_ignored(start, self, config, dpo_config=None, **named):
    """The loss ignores pref_loss_ratio, simpo_gamma and dpop_lambda."""
    own = replace(dpo_config, pref_loss_ratio=1.0, simpo_gamma=0.5, dpop_lambda=50.0)
    start(self, config, dpo_config=own, **named)


@fault("dpo.loss-options", "dpo.first-loss", wraps="paddlenlp.trl:DPOCriterion.dpo_logps")
def sums_for_every_loss_type(logps, self, *given):
    """The loss types ipo, or and simpo sum log-probabilities over tokens instead of taking their mean."""
    return logps(self, *given[:4])


@fault("dpo.lora-training", wraps="paddlenlp.trl:DPOTrainer.disable_lora")
def adapter_stays_on_for_the_reference(_real, self, model):
    """DPO with LoRA compares the policy with itself, because the adapter is not switched off."""


@fault("dpo.lora-training", "dpo.first-loss", wraps="paddlenlp.trl:DPOCriterion.dpo_loss")
def reference_counts_half(loss, self, chosen, rejected, *kept):
    """The loss takes half of the reference model's log-probabilities."""
    return loss(self, chosen, rejected, *[0.5 * each for each in kept])


@fault("dpo.logged", wraps="paddlenlp.trl:DPOTrainer.log_metric")
def logged_rewards_exchange_their_answers(log, self, *, policy_chosen_logps, policy_rejected_logps, **named):
    """The log has the log-probabilities of chosen and rejected answers exchanged."""
    log(self, policy_chosen_logps=policy_rejected_logps, policy_rejected_logps=policy_chosen_logps, **named)


@fault("dpo.dropout-is-off", wraps="paddlenlp.trl.kto_trainer:disable_dropout_in_model")
def dropout_stays_on_in_kto(_real, model):
    """KTO accepts disable_dropout and switches no dropout off."""


@fault("dpo.trainer-arguments", wraps="paddlenlp.trl:DPOTrainer.__init__")
def arguments_of_the_trainer_are_lost(start, self, *given, dpo_criterion=None, ignore_eos_token=False, **named):
    """DPOTrainer makes its own criterion, which counts every token."""
    start(self, *given, **named)
