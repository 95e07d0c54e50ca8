"""The losses of preference training, in closed form."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from xpulab.reference import preferences

EQUAL = {"chosen": np.array([-3.0, -1.0]), "rejected": np.array([-2.0, -5.0])}


def settings(kind="sigmoid", **changed):
    fields = {"beta": 0.2, "label_smoothing": 0.0, "simpo_gamma": 0.5, "dpop_lambda": 50.0, "pref_loss_ratio": 1.0}
    return SimpleNamespace(loss_type=kind, **{**fields, **changed})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("sigmoid", math.log(2)),
        ("dpop", math.log(2)),
        ("hinge", 1.0),
        ("ipo", 2.5**2),
        ("kto_pair", 0.5),
        ("sppo_hard", 2 * 2.5**2),
        ("nca_pair", 2 * math.log(2)),
    ],
)
def test_a_policy_that_equals_its_reference_has_a_loss_in_closed_form(kind, value):
    assert preferences.preference_loss(EQUAL, EQUAL, settings(kind)) == pytest.approx(value)


@pytest.mark.parametrize("kind", preferences.WITHOUT_REFERENCE)
def test_losses_without_a_reference_model_do_not_read_it(kind):
    other = {key: 2 * value for key, value in EQUAL.items()}
    own = settings(kind)
    assert preferences.preference_loss(EQUAL, EQUAL, own) == preferences.preference_loss(EQUAL, other, own)


def test_full_smoothing_exchanges_the_answers():
    turned = {"chosen": EQUAL["rejected"], "rejected": EQUAL["chosen"]}
    none = {key: np.zeros(2) for key in EQUAL}
    smoothed = preferences.preference_loss(EQUAL, none, settings(label_smoothing=1.0))
    assert smoothed == pytest.approx(preferences.preference_loss(turned, none, settings()))


def test_the_dpop_penalty_is_scaled_by_beta():
    policy = {"chosen": EQUAL["chosen"] - 1.0, "rejected": EQUAL["rejected"] - 1.0}
    loss = preferences.preference_loss(policy, EQUAL, settings("dpop", dpop_lambda=3.0))
    assert loss == pytest.approx(math.log(1 + math.exp(0.2 * 3.0)))


def test_an_unknown_loss_type_is_refused():
    with pytest.raises(ValueError, match="choose one of sigmoid"):
        preferences.preference_loss(EQUAL, EQUAL, settings("sigmoyd"))


def test_kto_weighs_both_kinds_of_answers():
    own = SimpleNamespace(beta=0.3, desirable_weight=1.5, undesirable_weight=0.5)
    assert preferences.kto_loss(np.zeros(3), np.zeros(1), 0.0, own) == pytest.approx(0.5 * (3 * 1.5 + 0.5) / 4)
