"""Faults that 03_dpo must detect."""

from __future__ import annotations

from xpulab.faults.fault import fault


@fault("03_dpo", detected_by=("dpo.reference-is-frozen",))
def reference_model_trains() -> None:
    """The reference model follows the policy."""
    from paddlenlp.trl import DPOTrainer

    metrics = DPOTrainer.get_batch_metrics

    def following(self, ref_model, model, batch, train_eval="train"):
        loss = metrics(self, ref_model, model, batch, train_eval)
        if ref_model is not None:
            for kept, moving in zip(ref_model.parameters(), model.parameters(), strict=False):
                kept.set_value(kept * 0.9 + moving * 0.1)
        return loss

    DPOTrainer.get_batch_metrics = following


@fault("03_dpo", detected_by=("dpo.margin", "dpo.accuracy", "dpo.first-gradients", "dpo.losses", "dpo.style"))
def margin_with_the_wrong_sign() -> None:
    """The loss prefers the rejected answer."""
    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss

    def turned(self, pi_chosen, pi_rejected, ref_chosen, ref_rejected):
        return loss(self, pi_rejected, pi_chosen, ref_rejected, ref_chosen)

    DPOCriterion.dpo_loss = turned


@fault("03_dpo", detected_by=("dpo.question-has-no-gradient", "dpo.packing"))
def question_is_learned() -> None:
    """The question counts as part of both answers."""
    from paddlenlp.trl import DPOCriterion

    logps = DPOCriterion.dpo_logps

    def with_question(self, logits, chosen, rejected, bounds, average_log_prob=False):
        bounds = bounds.clone()
        bounds[:, 1] -= 2
        return logps(self, logits, chosen, rejected, bounds, average_log_prob)

    DPOCriterion.dpo_logps = with_question


@fault("03_dpo", detected_by=("dpo.packing", "dpo.first-gradients"))
def answers_see_each_other() -> None:
    """The mask of the packed sequence is merely causal, so that the rejected answer sees the chosen one."""
    import numpy as np
    import paddlenlp.trl as trl

    encode = trl.preprocess_preference_data

    def seeing(*given):
        example = encode(*given)
        return {**example, "attention_mask": np.tri(len(example["input_ids"]), dtype=bool)}

    trl.preprocess_preference_data = seeing


@fault("03_dpo", detected_by=("dpo.packing",))
def positions_go_on() -> None:
    """The rejected answer's positions count on from the chosen one's end."""
    import paddlenlp.trl as trl

    encode = trl.preprocess_preference_data

    def going_on(*given):
        example = encode(*given)
        return {**example, "position_ids": list(range(len(example["input_ids"])))}

    trl.preprocess_preference_data = going_on


@fault("03_dpo", detected_by=("dpo.first-loss", "dpo.losses", "dpo.first-gradients"))
def beta_is_forgotten() -> None:
    """The loss is computed with beta 1."""
    from dataclasses import replace

    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss

    def plain(self, *logps):
        own, self.dpo_config = self.dpo_config, replace(self.dpo_config, beta=1.0)
        try:
            return loss(self, *logps)
        finally:
            self.dpo_config = own

    DPOCriterion.dpo_loss = plain


@fault("03_dpo", detected_by=("dpo.lora-margin", "dpo.lora-reference"))
def adapter_stays_on_for_the_reference() -> None:
    """DPO with LoRA compares the policy with itself."""
    from paddlenlp.trl import DPOTrainer

    DPOTrainer.disable_lora = lambda self, model: None


@fault("03_dpo", detected_by=("dpo.first-loss", "dpo.starts-at-ln-2"))
def no_reference() -> None:
    """The loss leaves the reference out."""
    from paddlenlp.trl import DPOCriterion

    loss = DPOCriterion.dpo_loss
    DPOCriterion.dpo_loss = lambda self, a, b, c, d: loss(self, a, b, 0 * c, 0 * d)


@fault("03_dpo", detected_by=("dpo.kto-loss", "dpo.kto-first-loss"))
def thumbs_exchanged() -> None:
    """KTO weighs answers with the thumb up as if it were down."""
    from dataclasses import replace

    from paddlenlp.trl import KTOCriterion

    start = KTOCriterion.__init__

    def exchanged(self, config, kto_config=None, **named):
        up, down = kto_config.desirable_weight, kto_config.undesirable_weight
        start(self, config, kto_config=replace(kto_config, desirable_weight=down, undesirable_weight=up), **named)

    KTOCriterion.__init__ = exchanged


@fault("03_dpo", detected_by=("dpo.first-gradients", "dpo.gradients"))
def preference_gradients_doubled() -> None:
    """Every gradient of preference training is twice as large."""
    import paddle

    backward = paddle.Tensor.backward
    paddle.Tensor.backward = lambda self, *given, **named: backward(self * 2, *given, **named)


@fault("03_dpo", device="sim", detected_by=("device-proof.dpo-places",))
def reference_on_the_cpu() -> None:
    """The reference model stays on the CPU."""
    from paddlenlp.trl import DPOTrainer

    start = DPOTrainer.__init__

    def left_behind(self, *given, **named):
        start(self, *given, **named)
        if self.ref_model is not None:
            self.ref_model.to("cpu")

    DPOTrainer.__init__ = left_behind
