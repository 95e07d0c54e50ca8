"""Answers to questions as ordinary sequences, their log-probabilities from PaddleNLP and from numpy, and the first gradients.

Chapter 04 teaches its start model with ordinary sequences, and compares packed ones with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddlenlp.trainer import TrainerCallback

from xpulab import reference
from xpulab.chapters.shared.models import IGNORED, prompt
from xpulab.chapters.shared.states import distinct


def unpacked(rows: Sequence[dict[str, str]], key: str, tokenizer: Any) -> dict[str, np.ndarray]:
    """Each question and one of its answers as a sequence: input_ids, attention_mask and labels, each [rows, length].

    key: "chosen" or "rejected". The labels are shifted: each is the next token. Those outside of the answer are IGNORED.
    """
    by_hand = tokenizer.chat_template is None  # a template writes all special tokens itself
    sequences = []
    for row in rows:
        asked = tokenizer(prompt(tokenizer, row["question"]), add_special_tokens=by_hand)["input_ids"]
        answer = f" {row[key]}" if by_hand else row[key]
        answered = [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        labels = [*[IGNORED] * (len(asked) - 1), *answered]
        sequences.append((asked + answered[:-1], [1] * len(labels), labels))
    longest = max(len(ids) for ids, _, _ in sequences)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": IGNORED}
    return {
        name: np.array([each[index] + [fill] * (longest - len(each[index])) for each in sequences])
        for index, (name, fill) in enumerate(fills.items())
    }


def scores_of(network: Any, batch: Mapping[str, Any]) -> paddle.Tensor:
    """The network's logits for packed sequences, [batch, length, vocabulary]."""
    output = network(**{name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")})
    return output[0] if isinstance(output, tuple) else output


def logps_of(criterion: Any, network: Any, batch: Mapping[str, Any]) -> tuple[paddle.Tensor, paddle.Tensor]:
    """The log-probability of each chosen and of each rejected answer, two tensors of [batch], from DPOCriterion."""
    labels = (batch["chosen_labels"], batch["rejected_labels"], batch["response_indexs"])
    chosen, rejected = criterion.dpo_logps(scores_of(network, batch), *labels)[:2]
    return chosen, rejected


@paddle.no_grad()
def packed_logps_of(criterion: Any, network: Any, batch: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """As logps_of, in eval mode and as arrays of [batch], by "chosen" and "rejected"."""
    network.eval()
    chosen, rejected = logps_of(criterion, network, batch)
    return {"chosen": chosen.numpy(), "rejected": rejected.numpy()}


class FirstGradients(TrainerCallback):
    """Keeps the gradients of the first step: `kept`, tensors by the weights' names."""

    def __init__(self) -> None:
        self.kept: dict[str, paddle.Tensor] = {}

    def on_optimizer_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        """Called after the backward pass, before the optimizer."""
        if not self.kept:
            self.kept = {name: weight.grad.clone() for name, weight in model.named_parameters()}


def exact_weights(network: Any) -> reference.DoublePrecision:
    """A copy of a network's weights that are read in double precision, by name; tied ones once."""
    return reference.DoublePrecision({name: value.numpy() for name, value in distinct(network.state_dict()).items()})


def exact_logps(network: Any, config: Any, answers: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """From numpy, the log-probability of each answer in double precision, [rows], by kind; answers: from `unpacked`.

    The copy of the weights is freed afterwards.
    """
    weights = exact_weights(network)
    return {key: reference.log_probabilities(weights, config, batch, IGNORED)[0] for key, batch in answers.items()}
