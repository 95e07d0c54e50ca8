"""Options of a preference loss together: PaddleNLP's criteria on given logits, beside the formulas in double precision.

    check.grid("dpo.loss-options", LOSSES, one_by_one(measure), add_row, level=level, seed=seed, means=...)

A case has packed pairs of answers with different lengths, logits of a policy and of a reference model, and compares everything
that the criterion returns, and the gradient of the loss. KTO has a grid of its own, whose records have a thumb up or down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
from paddlenlp.trl import DPOCriterion, KTOCriterion

from xpulab.chapters.shared.missing_kernels import add_row_of
from xpulab.checks.compared import Compared
from xpulab.checks.grid import Case, Grid
from xpulab.reference import preferences as formulas
from xpulab.reference.operators import log_softmax

KINDS = ("chosen", "rejected")
LENGTHS = {"chosen": (3, 2, 4, 1), "rejected": (9, 12, 2, 5)}
"""Tokens of the answers of four pairs."""

_QUESTION, _WORDS = 4, 50
"""Tokens of a question and of the vocabulary."""

_CONFIG = SimpleNamespace(tensor_parallel_output=False, tensor_parallel_degree=1)
"""What the criteria read of a model's configuration."""

ROWS = {"a pair in a row": 1, "two pairs in a row": 2}
BONUS = {"near": (2.0, 0.2), "far": (-45.0, 8.0), "sure": (24.0, 0.2)}
"""By name how much more logit the policy has than the reference model for the tokens of chosen and of rejected answers: it
begins to learn, has learned the opposite, or knows the chosen answers by heart."""

TYPES = ("float32", "bfloat16")
"""Of the logits."""

THUMBS = {"both": (1, 0, 0, 1), "up": (1, 1, 1, 1), "down": (0, 0, 0, 0)}
DIVERGENCE = {"positive": 0.5, "negative": -0.5}
"""By its sign how much more logit the policy has for the tokens of answers to other questions."""


LOSSES = Grid(
    {
        "loss": formulas.LOSS_TYPES,
        "beta": (0.1, 0.7),
        "smoothing": (0.0, 0.2),
        "constant": ("default", "own"),
        "preference_share": (1.0, 0.3),
        "tuning_share": (0.0, 0.2),
        "reference": ("another model", "the policy", "none"),
        "rows": ROWS,
        "tokens": ("none is 0", "0 among them"),
        "end": ("counts", "ignored"),
        "logits": TYPES,
        "values": BONUS,
    },
    {
        "only simpo and dpop have a constant": lambda loss, constant: constant == "own" and loss not in ("simpo", "dpop"),
        "or and simpo have no reference model": lambda loss, reference: (
            loss in formulas.WITHOUT_REFERENCE and reference != "none"
        ),
        "the loss has a corner where the policy is the reference": lambda loss, reference: (
            loss in ("dpop", "kto_pair") and reference == "the policy"
        ),
    },
    each="loss",
)
"""The grid of DPOCriterion. constant: simpo_gamma or dpop_lambda. preference_share, tuning_share: pref_loss_ratio and
sft_loss_ratio. tokens: whether 0, which the labels also have outside of answers, is a token of each answer. end: whether
ignore_eos_token is set."""

THUMBS_UP_OR_DOWN = Grid(
    {
        "thumbs": THUMBS,
        "beta": (0.1, 0.7),
        "weights": {"equal": (1.0, 1.0), "1.5 and 0.5": (1.5, 0.5)},
        "divergence": DIVERGENCE,
        "reference": ("another model", "the policy"),
        "rows": ROWS,
        "tokens": ("none is 0", "0 among them"),
        "logits": TYPES,
    },
    {"a policy does not differ from itself": lambda divergence, reference: divergence < 0 and reference == "the policy"},
)
"""The grid of KTOCriterion. weights: of answers with thumb up and down. divergence: the sign of its estimate."""


@dataclass(frozen=True)
class Settings:
    """What the criteria read of their configuration, with its defaults."""

    loss_type: str = "sigmoid"
    beta: float = 0.1
    label_smoothing: float = 0.0
    simpo_gamma: float = 0.5
    dpop_lambda: float = 50.0
    pref_loss_ratio: float = 1.0
    sft_loss_ratio: float = 0.0
    desirable_weight: float = 1.0
    undesirable_weight: float = 1.0


def measure(case: Case) -> Compared:
    """DPOCriterion on the device in use."""
    batch = _Batch(case, BONUS[case.labels["values"]], noise=1.0)
    own = Settings(
        loss_type=case.loss,
        beta=case.beta,
        label_smoothing=case.smoothing,
        pref_loss_ratio=case.preference_share,
        sft_loss_ratio=case.tuning_share,
    )
    if case.constant == "own":
        own = replace(own, simpo_gamma=1.3, dpop_lambda=3.0)
    skips_end = case.end == "ignored"
    criterion = DPOCriterion(_CONFIG, dpo_config=own, ignore_eos_token=skips_end)
    given = [paddle.to_tensor(value) for value in (*batch.labels, batch.ends)]
    if case.reference == "none":
        kept: Any = [paddle.zeros([1])] * 2
    else:
        with paddle.no_grad():
            kept = criterion(batch.logits_of(batch.side_of_reference), (*given, None, None))
    logits = batch.logits_of("policy")
    logits.stop_gradient = False
    found = criterion(logits, (*given, *kept))
    found[-1].backward()

    is_mean = case.loss in formulas.MEANS
    policy, slopes = batch.logps("policy", skips_end, is_mean)
    none = {key: np.zeros_like(value) for key, value in policy.items()}
    reference = none if case.reference == "none" else batch.logps(batch.side_of_reference, skips_end, is_mean)[0]
    summed = batch.logps("policy", skips_end, is_mean=False)
    counted = int((batch.chosen_lengths).sum())

    def parts(now: dict[str, np.ndarray], kept: dict[str, np.ndarray], sums: np.ndarray) -> list[np.ndarray]:
        tuned = -sums.sum() / counted * own.sft_loss_ratio
        preferred = formulas.preference_loss(now, kept, own)
        return [now["chosen"], now["rejected"], np.array(tuned), np.array(preferred), np.array(tuned + preferred)]

    def exchanged(of: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"chosen": of["rejected"], "rejected": of["chosen"]}

    at = np.concatenate([policy[key] for key in KINDS])
    half = len(policy["chosen"])
    by_logp = _slope(
        lambda logps: formulas.preference_loss({"chosen": logps[:half], "rejected": logps[half:]}, reference, own), at
    )
    gradient = np.tensordot(by_logp, np.concatenate([slopes[key] for key in KINDS]), axes=1)
    gradient += -own.sft_loss_ratio / counted * summed[1]["chosen"].sum(axis=0)

    names = ("chosen", "rejected", "tuning", "preference", "loss")
    right = dict(zip(names, parts(policy, reference, summed[0]["chosen"]), strict=True))
    wrong = dict(zip(names, parts(exchanged(policy), exchanged(reference), summed[0]["rejected"]), strict=True))
    sensitive = max(1e-3, float(np.abs(by_logp).sum() + own.sft_loss_ratio * half / counted))
    bound = {name: batch.rounding * sensitive + 1e-6 * abs(float(right[name])) for name in names[2:]}
    return batch.compared(dict(zip(names, found, strict=True)), logits, right, wrong, gradient, bound)


def measure_thumbs(case: Case) -> Compared:
    """KTOCriterion on the device in use."""
    batch = _Batch(case, (2.0, case.divergence), noise=0.02)
    own = Settings(beta=case.beta, desirable_weight=case.weights[0], undesirable_weight=case.weights[1])
    ends = np.concatenate([batch.ends, np.array(case.thumbs)[:, None]], axis=1)
    criterion = KTOCriterion(_CONFIG, kto_config=own)
    given = [paddle.to_tensor(value) for value in (*batch.labels, ends)]
    with paddle.no_grad():
        kept = criterion(batch.logits_of(batch.side_of_reference), (*given, None, None, None))
    logits = batch.logits_of("policy")
    logits.stop_gradient = False
    *found, loss, _ = criterion(logits, (*given, *kept))
    loss.backward()

    policy, slopes = batch.logps("policy", skips_end=False, is_mean=False)
    ratio = {key: policy[key] - value for key, value in batch.logps(batch.side_of_reference, False, False)[0].items()}
    zero_point = max(0.0, float(ratio["rejected"].mean()))
    is_up = np.array(case.thumbs) == 1

    def of(ratios: np.ndarray, up: np.ndarray) -> float:
        return formulas.kto_loss(ratios[up], ratios[~up], zero_point, own)

    by_logp = _slope(lambda ratios: of(ratios, is_up), ratio["chosen"])
    gradient = np.tensordot(by_logp, slopes["chosen"], axes=1)
    right = {
        "up": policy["chosen"][is_up],
        "down": policy["chosen"][~is_up],
        "others": policy["rejected"],
        "loss": np.array(of(ratio["chosen"], is_up)),
    }
    wrong = {
        "up": policy["rejected"][is_up],
        "down": policy["rejected"][~is_up],
        "others": policy["chosen"],
        "loss": np.array(of(ratio["chosen"], ~is_up)),
    }
    bound = {"loss": batch.rounding * float(np.abs(by_logp).sum() + own.beta) + 1e-6}
    return batch.compared(dict(zip(right, [*found, loss], strict=True)), logits, right, wrong, gradient, bound)


add_row = add_row_of(lambda case: [("log_softmax", case.logits, "")])


class _Batch:
    """Packed pairs, and the logits of both models.

    labels: [kind, row, length], 0 outside of the answers. ends: for each pair its row, where its chosen and its rejected answer
    begin, and the end. logits: by "policy" and "reference", [row, length, vocabulary], as exact as they are given.
    rounding: how far the sum of an answer's log-probabilities may be off.
    """

    def __init__(self, case: Case, bonus: tuple[float, float], noise: float) -> None:
        rng, in_row = case.rng(), ROWS[case.labels["rows"]]
        pairs = list(zip(*LENGTHS.values(), strict=True))
        self.ends = np.zeros([len(pairs), 4], dtype="int64")
        length = 0
        for number, (chosen, rejected) in enumerate(pairs):
            start = self.ends[number - 1, 3] if number % in_row else 0
            self.ends[number] = np.cumsum([0, start + _QUESTION, chosen, rejected])
            self.ends[number, 0] = number // in_row
            length = max(length, int(self.ends[number, 3]))
        self.chosen_lengths = self.ends[:, 2] - self.ends[:, 1]
        rows = len(pairs) // in_row
        self.labels = np.zeros([2, rows, length + 1], dtype="int64")  # the last place is padding
        reference = rng.normal(0, 2, [rows, length + 1, _WORDS])
        policy = reference + rng.normal(0, noise, reference.shape)
        for row, *bounds in self.ends.tolist():
            for kind, (first, last) in enumerate(pairwise(bounds)):
                drawn = rng.integers(1, _WORDS, last - first)
                if case.labels["tokens"] == "0 among them":
                    drawn[0] = 0
                self.labels[kind, row, first:last] = drawn
                policy[row, np.arange(first, last), drawn] += bonus[kind]
        sides = {"policy": policy, "reference": reference}
        self.side_of_reference = "policy" if case.reference == "the policy" else "reference"
        self._tensors = {side: paddle.to_tensor(value, dtype="float32").astype(case.logits) for side, value in sides.items()}
        self.logits = {side: tensor.astype("float32").numpy().astype("float64") for side, tensor in self._tensors.items()}
        largest = max(float(np.abs(value).max()) for value in self.logits.values())
        self.rounding = 16 * 2.0**-24 * max(LENGTHS["rejected"]) * largest
        self._of_type = {"bfloat16": 2.0**-8, "float16": 2.0**-10}.get(case.logits, 0.0)

    def logits_of(self, side: str) -> Any:
        """A tensor of its own."""
        return self._tensors[side].clone()

    def logps(self, side: str, skips_end: bool, is_mean: bool) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """By numpy: the log-probability of each answer, [pairs], and its gradient, [pairs, row, length, vocabulary], by kind.

        skips_end: whether the first token of a rejected answer is left out. is_mean: a mean over tokens, not their sum.
        """
        logs = log_softmax(self.logits[side])
        found, slopes = {}, {}
        for kind, key in enumerate(KINDS):
            found[key] = np.zeros(len(self.ends))
            slopes[key] = np.zeros([len(self.ends), *logs.shape])
            for pair, (row, *bounds) in enumerate(self.ends.tolist()):
                at = np.arange(bounds[kind] + (kind and skips_end), bounds[kind + 1])
                tokens, share = self.labels[kind, row, at], 1 / len(at) if is_mean else 1.0
                found[key][pair] = logs[row, at, tokens].sum() * share
                slopes[key][pair, row, at] = -np.exp(logs[row, at]) * share
                slopes[key][pair, row, at, tokens] += share
        return found, slopes

    def compared(
        self,
        found: dict[str, Any],
        logits: Any,
        right: dict[str, np.ndarray],
        wrong: dict[str, np.ndarray],
        slope: np.ndarray,
        bound: dict[str, float],
    ) -> Compared:
        """What was found beside what is right. slope: the gradient of the loss with respect to the logits.

        wrong: where chosen and rejected answers, or thumbs up and down, are exchanged. bound: where it is not `rounding`.
        """
        values = {name: value.astype("float64").numpy().reshape(right[name].shape) for name, value in found.items()}
        values["gradient"] = logits.grad.astype("float64").numpy()
        bound = {**dict.fromkeys(right, self.rounding), **bound}
        bound["gradient"] = max(float(np.abs(slope).max()), 1e-3) * (1e-3 + self._of_type)
        return Compared(values, {**right, "gradient": slope}, bound, {**wrong, "gradient": 0.9 * slope})


def _slope(of: Callable[[np.ndarray], float], at: np.ndarray) -> np.ndarray:
    """The gradient of a function of an array, [n], by central differences, with steps far below each of its values."""
    steps = 1e-5 * np.where(at == 0, 1.0, np.minimum(1.0, np.abs(at)))
    return np.array([(of(at + move) - of(at - move)) / (2 * step) for step, move in zip(steps, np.diag(steps), strict=True)])
