"""Answers to questions as ordinary sequences, what numpy computes of them, and a start model that gives both kinds of answers.

Chapter 04 compares packed sequences with these, and begins its training with this model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F

from xpulab import reference
from xpulab.chapters.shared.models import IGNORED, prompt
from xpulab.chapters.shared.states import distinct

_BATCH = 24
_REJECTED_WEIGHT = 2.0


def unpacked(rows: Sequence[dict[str, str]], key: str, tokenizer: Any) -> dict[str, np.ndarray]:
    """Each question and one of its answers as a sequence: input_ids, attention_mask and labels, each [rows, length].

    key: "chosen" or "rejected". The labels are shifted: each is the next token. Those outside of the answer are IGNORED.
    """
    sequences = []
    for row in rows:
        asked = tokenizer(prompt(row["question"]))["input_ids"]
        answered = tokenizer(row[key], add_special_tokens=False)["input_ids"]
        labels = [*[IGNORED] * (len(asked) - 1), *answered, tokenizer.eos_token_id]
        sequences.append((asked + answered, [1] * len(labels), labels))
    longest = max(len(ids) for ids, _, _ in sequences)
    fills = {"input_ids": 0, "attention_mask": 0, "labels": IGNORED}
    return {
        name: np.array([each[index] + [fill] * (longest - len(each[index])) for each in sequences])
        for index, (name, fill) in enumerate(fills.items())
    }


def teach_both_answers(model: Any, tokenizer: Any, rows: Sequence[dict[str, str]], rate: float, steps: int = 30) -> None:
    """Fine-tune the model on both answers of each row; the rejected one has twice the weight and becomes a habit.

    rate: the learning rate of AdamW. A step takes 24 rows, in their order.
    """
    optimizer = paddle.optimizer.AdamW(rate, parameters=model.parameters())
    batches = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
    encoded = [{key: unpacked(batch, key, tokenizer) for key in ("chosen", "rejected")} for batch in batches]
    model.train()
    for step in range(steps):
        batch = encoded[step % len(encoded)]
        loss = _loss(model, batch["chosen"]) + _REJECTED_WEIGHT * _loss(model, batch["rejected"])
        (loss / (1 + _REJECTED_WEIGHT)).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
    model.eval()


def _loss(model: Any, batch: dict[str, np.ndarray]) -> paddle.Tensor:
    """Minus the log-probability of an answer, the mean over the batch."""
    given = {name: paddle.to_tensor(batch[name]) for name in ("input_ids", "attention_mask")}
    output = model(**given)
    scores = output[0] if isinstance(output, tuple) else output
    of_tokens = F.cross_entropy(scores, paddle.to_tensor(batch["labels"]), ignore_index=IGNORED, reduction="none")
    return of_tokens.sum() / len(batch["labels"])


def exact_weights(network: Any) -> reference.DoublePrecision:
    """A copy of a network's weights that are read in double precision, by name; tied ones once."""
    return reference.DoublePrecision({name: value.numpy() for name, value in distinct(network.state_dict()).items()})


def exact_logps(network: Any, config: Any, answers: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """From numpy, the log-probability of each answer in double precision, [rows], by kind; answers: from `unpacked`.

    The copy of the weights is freed afterwards.
    """
    weights = exact_weights(network)
    return {key: reference.log_probabilities(weights, config, batch, IGNORED)[0] for key, batch in answers.items()}


def spelled(batch: Any, which: str, tokenizer: Any) -> list[str]:
    """The text of the labels between an answer's bounds, for each row of a packed batch; which: "chosen" or "rejected"."""
    texts = []
    for row, *bounds in batch["response_indexs"].tolist():
        first, last = bounds[:2] if which == "chosen" else bounds[1:]
        texts.append(tokenizer.decode(batch[f"{which}_labels"][row].tolist()[first:last]))
    return texts
