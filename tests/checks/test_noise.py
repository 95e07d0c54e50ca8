"""Where a device does not repeat itself, and only there, the difference of its own runs is the bound of what must be equal."""

from __future__ import annotations

import numpy as np
import pytest

from xpulab.checks import check

EXACT = {"weight": np.linspace(-1, 1, 1000, dtype="float32"), "bias": np.zeros(4, "float32")}
CONTROL = {"weight": EXACT["weight"] + 1, "bias": EXACT["bias"] + 1}


class Card:
    """A card whose results differ by so much from run to run, and a count of its runs."""

    def __init__(self, noise):
        self.noise, self.runs, self.random = noise, 0, np.random.default_rng(0)

    def run(self):
        self.runs += 1
        return {
            name: value + self.noise * self.random.uniform(-1, 1, value.shape).astype("float32")
            for name, value in EXACT.items()
        }


def off_by(difference):
    return {name: value + np.float32(difference) for name, value in EXACT.items()}


def outcome(shown, measured, card, control=CONTROL):
    check.bitwise("a.b", measured, EXACT, control=control, repeat=card.run)
    return shown.record.outcome


def test_equal_bits_pass_and_the_device_is_not_asked(shown):
    card = Card(1e-6)
    assert outcome(shown, EXACT, card) == "passed"
    assert (card.runs, shown.record.expected) == (0, "the same bits")


def test_equal_bits_leave_the_control_to_a_comparison_of_bits(shown):
    assert outcome(shown, EXACT, Card(1.0), control=off_by(1e-6)) == "passed"


@pytest.mark.parametrize("difference", [1e-7, 1e-3, 1.0])
def test_on_a_device_that_repeats_itself_every_other_bit_is_red(shown, difference):
    assert outcome(shown, off_by(difference), Card(0.0)) == "failed"


def test_the_noise_of_a_device_is_allowed_and_the_record_says_so(shown):
    assert outcome(shown, Card(1e-6).run(), Card(1e-6)) == "passed"
    assert "the device does not repeat itself" in shown.record.expected


def test_the_order_of_names_does_not_matter(shown):
    assert outcome(shown, dict(reversed(Card(1e-6).run().items())), Card(1e-6)) == "passed"


def test_what_is_further_away_than_its_own_runs_is_red(shown):
    assert outcome(shown, off_by(1e-4), Card(1e-6)) == "failed"


def test_a_noise_in_which_the_control_is_lost_makes_the_check_broken(shown):
    assert outcome(shown, off_by(1e-4), Card(1.0)) == "broken"


def test_a_value_that_repeats_itself_beside_one_that_does_not_is_held_to_a_rounding(shown):
    card = Card(1e-6)
    still = {"weight": EXACT["weight"], "bias": EXACT["bias"] + 1e-5}
    check.bitwise("a.b", still, EXACT, control=CONTROL, repeat=lambda: {**card.run(), "bias": EXACT["bias"]})
    assert shown.record.outcome == "failed"


@pytest.mark.parametrize("measured", [{"weight": EXACT["weight"][:10], "bias": EXACT["bias"]}, {"weight": EXACT["weight"]}])
def test_another_shape_is_never_noise(shown, measured):
    assert outcome(shown, measured, Card(1e-6)) in ("failed", "broken")
    assert shown.record.outcome == "failed"


def test_a_repeat_that_raises_is_reported(shown):
    check.bitwise("a.b", off_by(1), EXACT, control=CONTROL, repeat=lambda: 1 / 0)
    assert (shown.record.outcome, "ZeroDivisionError" in shown.record.reason) == ("broken", True)
