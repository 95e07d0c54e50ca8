"""A check passes only when its value is right and its control was rejected for being wrong."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from xpulab.checks import check
from xpulab.records.record import RED, record_in


def fail():
    raise RuntimeError("out of memory")


GOOD = {
    "close": lambda: check.close("a.b", 1.0, 1.0, atol=0.1, control=2.0),
    "equal": lambda: check.equal("a.b", [1, 2], [1, 2], control=[1, 3]),
    "bitwise": lambda: check.bitwise("a.b", np.zeros(2), np.zeros(2), control=-np.zeros(2)),
    "below": lambda: check.below("a.b", 0.5, 1.0, control=1.0),
    "above": lambda: check.above("a.b", 1.5, 1.0, control=1.0),
    "between": lambda: check.between("a.b", 1.5, 1.0, 2.0, control=2.5),
    "finite": lambda: check.finite("a.b", [1.0], control=[math.nan]),
    "true": lambda: check.true("a.b", True, control=False),
    "raises": lambda: check.raises("a.b", RuntimeError, fail, control=lambda: None),
}
BAD = {
    "close": lambda: check.close("a.b", 1.2, 1.0, atol=0.1, control=2.0),
    "equal": lambda: check.equal("a.b", [1, 4], [1, 2], control=[1, 3]),
    "bitwise": lambda: check.bitwise("a.b", np.ones(2), np.zeros(2), control=-np.zeros(2)),
    "below": lambda: check.below("a.b", 1.5, 1.0, control=1.0),
    "above": lambda: check.above("a.b", 0.5, 1.0, control=1.0),
    "between": lambda: check.between("a.b", 0.5, 1.0, 2.0, control=2.5),
    "finite": lambda: check.finite("a.b", [math.inf], control=[math.nan]),
    "true": lambda: check.true("a.b", False, control=False),
    "raises": lambda: check.raises("a.b", RuntimeError, lambda: None, control=lambda: None),
}
CANNOT_FAIL = {
    "close": lambda: check.close("a.b", 1.0, 1.0, atol=0.1, control=1.05),
    "equal": lambda: check.equal("a.b", [1, 2], [1, 2], control=[1, 2]),
    "bitwise": lambda: check.bitwise("a.b", np.zeros(2), np.zeros(2), control=np.zeros(2)),
    "below": lambda: check.below("a.b", 0.5, 1.0, control=0.9),
    "above": lambda: check.above("a.b", 1.5, 1.0, control=1.1),
    "between": lambda: check.between("a.b", 1.5, 1.0, 2.0, control=2.0),
    "finite": lambda: check.finite("a.b", [1.0], control=[2.0]),
    "true": lambda: check.true("a.b", True, control=True),
    "raises": lambda: check.raises("a.b", RuntimeError, fail, control=fail),
}
INCOMPARABLE_CONTROL = {
    "close, another shape": lambda: check.close("a.b", [1.0], [1.0], atol=0.1, control=[2.0, 2.0]),
    "close, NaN": lambda: check.close("a.b", 1.0, 1.0, atol=0.1, control=math.nan),
    "close, empty": lambda: check.close("a.b", [1.0], [1.0], atol=0.1, control=[]),
    "equal, None": lambda: check.equal("a.b", ["x", "y"], ["x", "y"], control=None),
    "equal, empty": lambda: check.equal("a.b", ["x"], ["x"], control=[]),
    "equal, text instead of a number": lambda: check.equal("a.b", 1, 1, control="other"),
    "equal, other keys": lambda: check.equal("a.b", {"x": 1}, {"x": 1}, control={"y": 2}),
    "equal, NaN": lambda: check.equal("a.b", 1.0, 1.0, control=math.nan),
    "bitwise, another type": lambda: check.bitwise("a.b", np.zeros(1), np.zeros(1), control=np.ones(1, np.float32)),
    "below, NaN": lambda: check.below("a.b", 0.5, 1.0, control=math.nan),
    "below, infinity": lambda: check.below("a.b", 0.5, 1.0, control=math.inf),
    "above, empty": lambda: check.above("a.b", 1.5, 1.0, control=[]),
    "between, NaN": lambda: check.between("a.b", 1.5, 1.0, 2.0, control=[math.nan]),
    "finite, empty": lambda: check.finite("a.b", [1.0], control=[]),
    "true, None": lambda: check.true("a.b", True, control=None),
    "true, number": lambda: check.true("a.b", True, control=0),
    "raises, another exception": lambda: check.raises("a.b", ValueError, lambda: int("x"), control=fail),
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD.keys())
def test_the_right_value_with_a_wrong_control_passes_without_a_reason(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control, shown.record.reason) == ("passed", "rejected", None)


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_a_wrong_value_fails_with_a_reason(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("failed", "rejected")
    assert shown.record.reason


@pytest.mark.parametrize("make", CANNOT_FAIL.values(), ids=CANNOT_FAIL.keys())
def test_a_check_whose_control_is_accepted_is_broken(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("broken", "accepted")


@pytest.mark.parametrize("make", INCOMPARABLE_CONTROL.values(), ids=INCOMPARABLE_CONTROL.keys())
def test_a_check_whose_control_is_incomparable_is_broken(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("broken", "incomparable")


def test_a_wrong_value_whose_control_is_accepted_is_broken_and_both_are_reported(shown):
    check.below("a.b", 2.0, 1.0, control=0.5)
    assert shown.record.reason == "2 is not < 1; and its control is accepted too, so this check cannot fail"


def fail_with_another_text():
    raise RuntimeError("shape")


ENDS = {
    "a control that raises": (lambda: check.equal("a.b", 1, 1, control=fail), "broken", "raised", "out of memory"),
    "a control that cannot be compared": (
        lambda: check.close("a.b", 1.0, 1.0, atol=0.1, control=None),
        "broken",
        "raised",
        "control",
    ),
    "a value that raises": (lambda: check.equal("a.b", fail, 1, control=2), "broken", "not tried", "out of memory"),
    "a bound of NaN": (lambda: check.below("a.b", 0.5, math.nan, control=1.0), "broken", "not tried", "nan"),
    "NaN is expected": (lambda: check.close("a.b", math.nan, math.nan, atol=0.1, control=1.0), "broken", "incomparable", ""),
    "a function as value": (lambda: check.equal("a.b", lambda: 1, 1, control=2), "passed", "rejected", ""),
    "a function as control": (lambda: check.equal("a.b", 1, 1, control=lambda: 2), "passed", "rejected", ""),
    "a right function as control": (lambda: check.equal("a.b", 1, 1, control=lambda: 1), "broken", "accepted", "cannot fail"),
    "a relative bound": (lambda: check.close("a.b", 105.0, 100.0, rtol=0.1, control=120.0), "passed", "rejected", ""),
    "both bounds": (lambda: check.close("a.b", 112.0, 100.0, rtol=0.1, atol=3.0, control=114.0), "passed", "rejected", ""),
    "raises of no function": (lambda: check.raises("a.b", Exception, 5, control=lambda: None), "broken", "not tried", ""),
    "raises, its control is no function": (lambda: check.raises("a.b", RuntimeError, fail, control=5), "broken", "raised", ""),
    "another exception": (lambda: check.raises("a.b", ValueError, fail, control=lambda: None), "failed", "rejected", ""),
    "another text": (
        lambda: check.raises("a.b", RuntimeError, fail, match="shape", control=lambda: None),
        "failed",
        "rejected",
        "",
    ),
    "another text of the control": (
        lambda: check.raises("a.b", RuntimeError, fail, match="memory", control=fail_with_another_text),
        "passed",
        "rejected",
        "",
    ),
}


@pytest.mark.parametrize(("make", "outcome", "control", "said"), ENDS.values(), ids=ENDS.keys())
def test_a_check_ends(make, outcome, control, said, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == (outcome, control)
    assert said in (shown.record.reason or "")


def test_an_interrupt_is_not_caught(shown):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.equal("a.b", interrupt, 1, control=2)


@pytest.mark.parametrize(
    "bounds",
    [
        {},
        {"atol": 0.0},
        {"atol": -1.0, "rtol": 2.0},
        {"rtol": -1.0, "atol": 2.0},
        {"atol": math.nan},
        {"atol": math.inf},
    ],
)
def test_close_refuses_bounds_that_are_not_positive_and_finite(bounds):
    with pytest.raises(ValueError, match="needs a finite bound"):
        check.close("a.b", 1.0, 1.0, control=2.0, **bounds)


ABOUT_NAN = {
    "close": lambda control, **about: check.close("a.b", [1, math.nan], [1, math.nan], atol=0.1, control=control, **about),
    "equal": lambda control, **about: check.equal("a.b", [1, math.nan], [1, math.nan], control=control, **about),
    "bitwise": lambda control, **about: check.bitwise("a.b", [1, math.nan], [1, math.nan], control=control, **about),
}


@pytest.mark.parametrize("make", ABOUT_NAN.values(), ids=ABOUT_NAN.keys())
def test_a_check_about_nan_passes(make, shown):
    make([2, math.nan], about_nonfinite=True)
    assert shown.record.outcome == "passed"


@pytest.mark.parametrize("make", ABOUT_NAN.values(), ids=ABOUT_NAN.keys())
def test_a_check_that_is_not_about_nan_is_red_for_nan(make, shown):
    make([2, 3.0])
    assert shown.record.outcome in RED


def test_a_skip_is_recorded_with_its_reason(shown):
    check.skip("a.b", "gloo has no all_to_all")
    assert (shown.record.outcome, shown.record.reason) == ("skipped", "gloo has no all_to_all")


def test_the_ledger_has_every_record(shown):
    check.equal("a.one", 1, 1, control=2)
    check.skip("a.two", "no card")
    assert [record.outcome for record in check.ledger.records.values()] == ["passed", "skipped"]


def test_a_record_is_the_same_after_json(shown):
    for make in (*GOOD.values(), *BAD.values(), *CANNOT_FAIL.values(), *INCOMPARABLE_CONTROL.values()):
        make()
        assert record_in(json.loads(json.dumps(shown.outputs[-1][1], allow_nan=False))) == check.ledger.records["a.b"]


def test_a_record_has_the_duration_of_the_comparison(shown, monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    check.equal("a.b", 1, 1, control=2)
    assert shown.record.seconds == 2.5


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def raise_unreadable():
    raise UnreadableError


@pytest.mark.parametrize(
    "make",
    [
        lambda: check.equal("a.b", raise_unreadable, 1, control=2),
        lambda: check.equal("a.b", 1, 1, control=raise_unreadable),
        lambda: check.raises("a.b", ValueError, lambda: int("x"), control=raise_unreadable),
    ],
    ids=["value", "control", "control of raises"],
)
def test_an_error_whose_text_cannot_be_read_does_not_stop_the_notebook(make, shown):
    make()
    assert shown.record.outcome == "broken"


def fail_to_import():
    raise ImportError("cannot import name 'download' from 'aistudio_sdk.hub'")


def test_a_known_error_of_a_red_check_is_shown_with_cause_and_command(shown):
    check.equal("a.b", fail_to_import, 1, control=2)
    assert "cause: aistudio-sdk 0.3 removed hub.download" in shown.text
    assert "fix: python -m pip install 'aistudio-sdk<0.3'" in shown.text
    assert "aistudio-sdk 0.3 removed hub.download" in shown.html


def test_an_error_that_is_not_known_is_shown_without_cause(shown):
    check.equal("a.b", fail, 1, control=2)
    assert "out of memory" in shown.text and "cause: " not in shown.text
