"""The losses of preference training and their gradients, in double precision, from the formulas of their papers.

Log-probabilities are given as {"chosen": [n], "rejected": [n]}, those of the policy and those of the reference model. Settings
are any object with the fields of DPOTrainer's dpo_config or KTOTrainer's kto_config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xpulab.reference.losses import log_probabilities
from xpulab.reference.model import Batch, Gradients, Weights, no_gradients
from xpulab.reference.operators import FUNCTIONS

LogProbabilities = Mapping[str, np.ndarray]

LOSS_TYPES = ("sigmoid", "hinge", "ipo", "kto_pair", "sppo_hard", "nca_pair", "dpop", "or", "simpo")
"""The loss types of PaddleNLP's DPOTrainer."""
MEANS = ("ipo", "or", "simpo")
"""The loss types that take the mean over an answer's tokens; the others take the sum."""
WITHOUT_REFERENCE = ("or", "simpo")
"""The loss types without a reference model."""


def log_sigmoid(x: Any) -> np.ndarray:
    """ln(1 / (1 + exp(-x))), also for a large |x|."""
    return FUNCTIONS["log_sigmoid"].value(np.asarray(x, dtype="float64"))


def preference_loss(policy: LogProbabilities, reference: LogProbabilities, settings: Any) -> float:
    """The mean loss of the settings' loss type; `or` and `simpo` do not read the reference.

    Sources: Rafailov et al. 2023 (sigmoid), Zhao et al. 2023 (hinge), Azar et al. 2023 (ipo), Ethayarajh et al. 2024
    (kto_pair), Wu et al. 2024 (sppo_hard), Chen et al. 2024 (nca_pair), Pal et al. 2024 (dpop), Hong et al. 2024 (or),
    Meng et al. 2024 (simpo).
    """
    beta, kind = settings.beta, settings.loss_type
    if kind == "or":
        odds = {name: mean - np.log(-np.expm1(mean)) for name, mean in policy.items()}  # ln(p / (1 - p)) of a mean token
        losses = -log_sigmoid(odds["chosen"] - odds["rejected"])
        return float(losses.mean() * settings.pref_loss_ratio)
    if kind == "simpo":
        losses = _smoothed(beta * (policy["chosen"] - policy["rejected"]) - settings.simpo_gamma, settings)
        return float(losses.mean() * settings.pref_loss_ratio)

    a, b = policy["chosen"] - reference["chosen"], policy["rejected"] - reference["rejected"]
    h, half = a - b, 1 / (2 * beta)
    if kind == "sigmoid":
        losses = _smoothed(beta * h, settings)
    elif kind == "hinge":
        losses = np.maximum(0, 1 - beta * h)
    elif kind == "ipo":
        losses = (h - half) ** 2
    elif kind == "kto_pair":
        losses = np.concatenate([_kto_of_pairs(beta, a, b, +1), _kto_of_pairs(beta, b, a, -1)])
    elif kind == "sppo_hard":
        losses = (a - half) ** 2 + (b + half) ** 2
    elif kind == "nca_pair":
        losses = -log_sigmoid(beta * a) - 0.5 * log_sigmoid(-beta * a) - 0.5 * log_sigmoid(-beta * b)
    elif kind == "dpop":
        losses = -log_sigmoid(beta * (h - settings.dpop_lambda * np.maximum(0, -a)))
    else:
        raise ValueError(f"no loss type {kind!r}: choose one of {', '.join(LOSS_TYPES)}")
    return float(losses.mean() * settings.pref_loss_ratio)


def kto_loss(up: np.ndarray, down: np.ndarray, divergence: float, settings: Any) -> float:
    """KTO's mean loss from ln(policy / reference) of answers with thumb up and with thumb down (Ethayarajh et al. 2024).

    divergence: the zero point, which the paper clips at 0; it is used as given.
    """
    losses = [
        settings.desirable_weight * (1 - np.exp(log_sigmoid(settings.beta * (up - divergence)))),
        settings.undesirable_weight * (1 - np.exp(log_sigmoid(settings.beta * (divergence - down)))),
    ]
    return float(np.concatenate(losses).mean())


def dpo_step(
    weights: Weights, reference: Weights, config: Any, answers: Mapping[str, Batch], beta: float
) -> tuple[np.ndarray, float, Gradients]:
    """h, [n], the mean loss of DPO and its gradient for each weight, by name.

    weights, reference: of the policy and of the reference model. answers: ordinary sequences with the chosen and with the
    rejected answers; the label -100 is ignored. The gradient is -beta sigmoid(-beta h) times the difference of the gradients
    of both log-probabilities, averaged over the pairs.
    """
    now, before = (
        {key: log_probabilities(each, config, batch, ignored=-100)[0] for key, batch in answers.items()}
        for each in (weights, reference)
    )
    h = (now["chosen"] - now["rejected"]) - (before["chosen"] - before["rejected"])
    factors = -beta * np.exp(log_sigmoid(-beta * h)) / len(h)
    slopes = no_gradients()
    for key, sign in (("chosen", 1), ("rejected", -1)):  # one after the other: a backward pass holds all activations
        log_probabilities(weights, config, answers[key], ignored=-100, total=slopes)[1](sign * factors)
    return h, float(-log_sigmoid(beta * h).mean()), dict(slopes)


def _smoothed(x: np.ndarray, settings: Any) -> np.ndarray:
    """-ln sigmoid(x), where a share label_smoothing of the preferences is reversed."""
    share = settings.label_smoothing
    return -(1 - share) * log_sigmoid(x) - share * log_sigmoid(-x)


def _kto_of_pairs(beta: float, own: np.ndarray, other: np.ndarray, sign: int) -> np.ndarray:
    """KTO on pairs: the zero point of each kind of answer is the mean of the other kind, clipped at 0."""
    return 1 - np.exp(log_sigmoid(sign * beta * (own - max(0.0, float(other.mean())))))
