"""Log-probabilities and logits for which PaddleNLP's preference losses are compared with the formulas of their papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import paddle
from paddlenlp.trl import DPOCriterion

from xpulab.reference import preferences as formulas

KINDS = ("chosen", "rejected")
LENGTHS = {"chosen": (3, 2), "rejected": (9, 12)}
"""Tokens of the answers of two pairs."""
_QUESTION, _WORDS = 4, 50
"""Tokens of a question and of the vocabulary."""


def loss_of_paddle(config: Any, policy: formulas.LogProbabilities, reference: formulas.LogProbabilities, own: Any) -> float:
    """DPOCriterion's loss of given log-probabilities; types without a reference model get zeros for it, as from the trainer."""
    kept = 0.0 if own.loss_type in formulas.WITHOUT_REFERENCE else 1.0
    values = [*(policy[key] for key in KINDS), *(kept * reference[key] for key in KINDS)]
    given = [paddle.to_tensor(value, dtype="float32") for value in values]
    return float(DPOCriterion(config, dpo_config=own).dpo_loss(*given))


@dataclass(frozen=True)
class TwoPairs:
    """Two packed pairs with answers of LENGTHS, and the logits of both models.

    labels: [kind, pair, length], 0 outside of the answers. ends: for each pair its row, where its chosen and its rejected
    answer begin, and the end. logits: by "policy" and "reference", [pair, length, vocabulary].
    """

    labels: np.ndarray
    ends: list[tuple[int, int, int, int]]
    logits: dict[str, np.ndarray]

    def logps(self, side: str, mean: bool) -> dict[str, np.ndarray]:
        """From numpy: the log-probabilities of both kinds of answers, sums or means over their tokens, [pairs] each."""
        logs = self.logits[side] - np.log(np.exp(self.logits[side]).sum(axis=-1, keepdims=True))
        found = {}
        for kind, key in enumerate(KINDS):
            places = [(row, range(*bounds[kind : kind + 2])) for row, *bounds in self.ends]
            found[key] = formulas.sums_or_means([logs[row, at, self.labels[kind, row, at]] for row, at in places], mean)
        return found

    def by_formula(self, own: Any, mean: bool) -> float:
        """The loss by the formula of its paper, with sums or means over tokens."""
        return formulas.preference_loss(self.logps("policy", mean), self.logps("reference", mean), own)

    def of_paddle(self, config: Any, own: Any, **options: Any) -> Any:
        """DPOCriterion's outputs for the logits: the policy's log-probabilities, the parts of the loss, the loss."""
        compare = DPOCriterion(config, dpo_config=own, **options)
        given = [paddle.to_tensor(value) for value in (*self.labels, self.ends)]
        policy, kept = (paddle.to_tensor(self.logits[side], dtype="float32") for side in ("policy", "reference"))
        alone = own.loss_type in formulas.WITHOUT_REFERENCE
        logps = [paddle.zeros([1])] * 2 if alone else compare(kept, (*given, None, None))
        return compare(policy, (*given, *logps))


def two_pairs(random: np.random.Generator) -> TwoPairs:
    """Random logits of a reference model, and a policy that prefers all tokens of the answers, those of chosen ones most."""
    sizes = zip(*LENGTHS.values(), strict=True)
    ends = [(row, _QUESTION, _QUESTION + a, _QUESTION + a + b) for row, (a, b) in enumerate(sizes)]
    labels = np.zeros([2, 2, max(end for *_, end in ends)], dtype="int64")
    logits = {"reference": random.normal(0, 2, [2, labels.shape[-1], _WORDS])}
    logits["policy"] = logits["reference"].copy()
    for row, *bounds in ends:
        for kind, (first, last, bonus) in enumerate(zip(bounds, bounds[1:], (2.0, 0.2), strict=False)):
            labels[kind, row, first:last] = random.integers(1, _WORDS, last - first)
            for at in range(first, last):
                logits["policy"][row, at, labels[kind, row, at]] += bonus
    return TwoPairs(labels, ends, logits)
