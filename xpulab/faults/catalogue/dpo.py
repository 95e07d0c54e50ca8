"""Faults that 04_dpo must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault, replace_in_cells


@fault("04_dpo", detected_by=("dpo.reference-is-frozen",))
def reference_model_trains() -> None:
    """The reference model is updated together with the policy."""
    from paddlenlp.trl import DPOTrainer

    metrics = DPOTrainer.get_batch_metrics

    def updating(self, ref_model, model, batch, train_eval="train"):
        loss = metrics(self, ref_model, model, batch, train_eval)
        if ref_model is not None:
            for kept, moving in zip(ref_model.parameters(), model.parameters(), strict=False):
                kept.set_value(kept * 0.9 + moving * 0.1)
        return loss

    DPOTrainer.get_batch_metrics = updating


@fault(
    "04_dpo",
    detected_by=("dpo.margin", "dpo.accuracy", "dpo.first-gradients", "dpo.losses", "dpo.style"),
    smoke=("dpo.smoke-loss", "dpo.smoke-training"),
)
def margin_with_the_wrong_sign() -> None:
    """The loss prefers the rejected answer."""
    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss

    def exchanged(self, pi_chosen, pi_rejected, ref_chosen, ref_rejected):
        return loss(self, pi_rejected, pi_chosen, ref_rejected, ref_chosen)

    DPOCriterion.dpo_loss = exchanged


@fault("04_dpo", detected_by=("dpo.question-has-no-gradient", "dpo.packing"))
def question_is_learned() -> None:
    """The tokens of the question count as part of both answers."""
    from paddlenlp.trl import DPOCriterion

    logps = DPOCriterion.dpo_logps

    def with_question(self, logits, chosen, rejected, bounds, average_log_prob=False):
        bounds = bounds.clone()
        bounds[:, 1] -= 2
        return logps(self, logits, chosen, rejected, bounds, average_log_prob)

    DPOCriterion.dpo_logps = with_question


@fault("04_dpo", detected_by=("dpo.packing", "dpo.first-gradients"))
def mask_only_causal() -> None:
    """The mask of the packed sequence is only causal, so the rejected answer sees the chosen one."""
    import numpy as np
    import paddlenlp.trl as trl

    encode = trl.preprocess_preference_data

    def causal(*given):
        example = encode(*given)
        return {**example, "attention_mask": np.tri(len(example["input_ids"]), dtype=bool)}

    trl.preprocess_preference_data = causal


@fault("04_dpo", detected_by=("dpo.packing",))
def positions_continue() -> None:
    """The positions of the rejected answer continue those of the chosen one."""
    import paddlenlp.trl as trl

    encode = trl.preprocess_preference_data

    def continued(*given):
        example = encode(*given)
        return {**example, "position_ids": list(range(len(example["input_ids"])))}

    trl.preprocess_preference_data = continued


@fault("04_dpo", detected_by=("dpo.first-loss", "dpo.losses", "dpo.first-gradients", "dpo.settings"))
def beta_ignored() -> None:
    """The loss uses beta 1 instead of the configured value."""
    from dataclasses import replace

    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss

    def with_beta_1(self, *logps):
        own, self.dpo_config = self.dpo_config, replace(self.dpo_config, beta=1.0)
        try:
            return loss(self, *logps)
        finally:
            self.dpo_config = own

    DPOCriterion.dpo_loss = with_beta_1


@fault("04_dpo", detected_by=("dpo.lora-margin", "dpo.lora-reference"))
def adapter_stays_on_for_the_reference() -> None:
    """DPO with LoRA compares the policy with itself, because the adapter is not switched off."""
    from paddlenlp.trl import DPOTrainer

    DPOTrainer.disable_lora = lambda self, model: None


@fault("04_dpo", detected_by=("dpo.first-loss", "dpo.starts-at-ln-2"))
def reference_ignored() -> None:
    """The loss ignores the reference model."""
    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss
    DPOCriterion.dpo_loss = lambda self, a, b, c, d: loss(self, a, b, 0 * c, 0 * d)


@fault("04_dpo", detected_by=("dpo.kto-loss", "dpo.kto-first-loss"))
def kto_weights_exchanged() -> None:
    """KTO exchanges the weights of desirable and undesirable answers."""
    from dataclasses import replace

    from paddlenlp.trl import KTOCriterion

    start = KTOCriterion.__init__

    def exchanged(self, config, kto_config=None, **named):
        up, down = kto_config.desirable_weight, kto_config.undesirable_weight
        start(self, config, kto_config=replace(kto_config, desirable_weight=down, undesirable_weight=up), **named)

    KTOCriterion.__init__ = exchanged


@fault("04_dpo", detected_by=("dpo.first-gradients", "dpo.gradients"))
def preference_gradients_doubled() -> None:
    """Every gradient of preference training is twice as large."""
    import paddle

    backward = paddle.Tensor.backward
    paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)


@fault("04_dpo", detected_by=("dpo.own-loss", "dpo.settings", "dpo.first-gradients"))
def beta_stays_at_its_default() -> None:
    """The loss uses the default of beta instead of the configured value."""
    from dataclasses import replace

    from paddlenlp.trl import DPOCriterion

    start = DPOCriterion.__init__

    def with_the_default(self, config, dpo_config=None, **named):
        start(self, config, dpo_config=replace(dpo_config, beta=0.1), **named)

    DPOCriterion.__init__ = with_the_default


@fault("04_dpo", detected_by=("dpo.settings", "dpo.losses"), also_on=("sim",))
def label_smoothing_ignored() -> None:
    """The loss ignores label smoothing."""
    from dataclasses import replace

    from paddlenlp.trl import DPOCriterion

    start = DPOCriterion.__init__

    def without_smoothing(self, config, dpo_config=None, **named):
        start(self, config, dpo_config=replace(dpo_config, label_smoothing=0.0), **named)

    DPOCriterion.__init__ = without_smoothing


@fault("04_dpo", detected_by=("dpo.lengths", "dpo.first-loss"))
def sums_for_every_loss_type() -> None:
    """The loss types ipo, or and simpo sum log-probabilities over tokens instead of taking their mean."""
    from paddlenlp.trl import DPOCriterion

    logps = DPOCriterion.dpo_logps
    DPOCriterion.dpo_logps = lambda self, *given: logps(self, *given[:4])


@fault("04_dpo", detected_by=("dpo.lengths", "dpo.packing", "dpo.first-gradients"))
def means_for_every_loss_type() -> None:
    """Every loss type takes the mean of log-probabilities over tokens, so long answers count less."""
    from paddlenlp.trl import DPOCriterion

    logps = DPOCriterion.dpo_logps
    DPOCriterion.dpo_logps = lambda self, *given: logps(self, *given[:4], True)


@fault("04_dpo", detected_by=("dpo.lengths", "dpo.packing"))
def first_rejected_token_left_out() -> None:
    """The first token of each rejected answer does not count, as with ignore_eos_token."""
    from paddlenlp.trl import DPOCriterion

    logps = DPOCriterion.dpo_logps

    def left_out(self, *given):
        self.ignore_eos_token = True
        return logps(self, *given)

    DPOCriterion.dpo_logps = left_out


@fault("04_dpo", detected_by=("dpo.labels", "dpo.packing"))
def answers_exchanged_in_the_data() -> None:
    """The data set exchanges chosen and rejected answers."""
    replace_in_cells('answers = [row["chosen"], row["rejected"]]', 'answers = [row["rejected"], row["chosen"]]')


@fault("04_dpo", detected_by=("dpo.saved",))
def start_model_is_saved() -> None:
    """The start model is saved instead of the trained one."""
    replace_in_cells("policy.save_pretrained(folder)", "start_model.save_pretrained(folder)")


@fault("04_dpo", device="sim", detected_by=("device-proof.dpo-places",))
def reference_on_the_cpu() -> None:
    """The reference model stays on the CPU."""
    from paddlenlp.trl import DPOTrainer

    start = DPOTrainer.__init__

    def on_the_cpu(self, *given, **named):
        start(self, *given, **named)
        if self.ref_model is not None:
            self.ref_model.to("cpu")

    DPOTrainer.__init__ = on_the_cpu
