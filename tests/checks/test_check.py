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
PROVES_NOTHING = {
    "close, another shape": lambda: check.close("a.b", [1.0], [1.0], atol=0.1, control=[2.0, 2.0]),
    "close, NaN": lambda: check.close("a.b", 1.0, 1.0, atol=0.1, control=math.nan),
    "close, empty": lambda: check.close("a.b", [1.0], [1.0], atol=0.1, control=[]),
    "equal, None": lambda: check.equal("a.b", ["x", "y"], ["x", "y"], control=None),
    "equal, empty": lambda: check.equal("a.b", ["x"], ["x"], control=[]),
    "equal, text for a number": lambda: check.equal("a.b", 1, 1, control="other"),
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
    "raises, something else": lambda: check.raises("a.b", ValueError, lambda: int("x"), control=fail),
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD.keys())
def test_the_right_value_with_a_wrong_control_passes(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("passed", "rejected")


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD.keys())
def test_what_passed_has_no_reason(make, shown):
    make()
    assert shown.record.reason is None


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_a_wrong_value_fails(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("failed", "rejected")


@pytest.mark.parametrize("make", BAD.values(), ids=BAD.keys())
def test_what_failed_says_why(make, shown):
    make()
    assert shown.record.reason


@pytest.mark.parametrize("make", CANNOT_FAIL.values(), ids=CANNOT_FAIL.keys())
def test_a_control_that_passes_breaks_the_check(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("broken", "accepted")


@pytest.mark.parametrize("make", PROVES_NOTHING.values(), ids=PROVES_NOTHING.keys())
def test_a_control_that_is_no_candidate_breaks_the_check(make, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ("broken", "incomparable")


def test_a_wrong_value_whose_control_passes_is_broken_and_says_both(shown):
    check.below("a.b", 2.0, 1.0, control=0.5)
    assert shown.record.reason == "2 is not < 1; and its control is accepted too, so this check cannot fail"


def test_a_control_that_raises_breaks_the_check(shown):
    check.equal("a.b", 1, 1, control=fail)
    assert (shown.record.outcome, shown.record.control) == ("broken", "raised")


def test_a_control_of_a_type_that_cannot_be_compared_breaks_the_check(shown):
    check.close("a.b", 1.0, 1.0, atol=0.1, control=None)
    assert (shown.record.outcome, shown.record.control) == ("broken", "raised")


def test_the_error_of_a_control_is_told(shown):
    check.equal("a.b", 1, 1, control=fail)
    assert shown.record.reason == "its control raised RuntimeError: out of memory"


def test_a_value_that_raises_breaks_the_check_and_its_control_is_not_tried(shown):
    check.equal("a.b", fail, 1, control=2)
    assert (shown.record.outcome, shown.record.control) == ("broken", "not tried")


def test_the_error_of_a_value_is_told(shown):
    check.equal("a.b", fail, 1, control=2)
    assert shown.record.reason == "it raised RuntimeError: out of memory"


def test_a_bound_of_nan_breaks_the_check(shown):
    check.below("a.b", 0.5, math.nan, control=1.0)
    assert shown.record.outcome == "broken"


def test_an_expected_nan_breaks_the_check_even_when_nan_was_measured(shown):
    check.close("a.b", math.nan, math.nan, atol=0.1, control=1.0)
    assert shown.record.outcome == "broken"


def test_a_function_stands_for_the_value_that_it_returns(shown):
    check.equal("a.b", lambda: 1, 1, control=2)
    assert shown.record.outcome == "passed"


def test_a_control_may_be_a_function_too(shown):
    check.equal("a.b", 1, 1, control=lambda: 2)
    assert shown.record.control == "rejected"


def test_a_control_function_that_returns_the_right_value_breaks_the_check(shown):
    check.equal("a.b", 1, 1, control=lambda: 1)
    assert shown.record.control == "accepted"


def test_an_interrupt_is_not_swallowed(shown):
    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        check.equal("a.b", interrupt, 1, control=2)


def test_close_takes_the_relative_bound(shown):
    check.close("a.b", 105.0, 100.0, rtol=0.1, control=120.0)
    assert shown.record.outcome == "passed"


def test_close_takes_both_bounds(shown):
    check.close("a.b", 112.0, 100.0, rtol=0.1, atol=3.0, control=114.0)
    assert shown.record.outcome == "passed"


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
def test_close_refuses_a_bound_that_bounds_nothing(bounds):
    with pytest.raises(ValueError, match="needs a finite bound"):
        check.close("a.b", 1.0, 1.0, control=2.0, **bounds)


ABOUT_NAN = {
    "close": lambda control, **about: check.close("a.b", [1, math.nan], [1, math.nan], atol=0.1, control=control, **about),
    "equal": lambda control, **about: check.equal("a.b", [1, math.nan], [1, math.nan], control=control, **about),
    "bitwise": lambda control, **about: check.bitwise("a.b", [1, math.nan], [1, math.nan], control=control, **about),
}


@pytest.mark.parametrize("make", ABOUT_NAN.values(), ids=ABOUT_NAN.keys())
def test_a_check_about_nan_passes_when_it_says_so(make, shown):
    make([2, math.nan], about_nonfinite=True)
    assert shown.record.outcome == "passed"


@pytest.mark.parametrize("make", ABOUT_NAN.values(), ids=ABOUT_NAN.keys())
def test_a_check_that_does_not_say_so_does_not_pass_on_nan(make, shown):
    make([2, 3.0])
    assert shown.record.outcome in RED


def test_raises_is_broken_when_it_is_given_a_result_instead_of_a_function(shown):
    check.raises("a.b", Exception, 5, control=lambda: None)
    assert shown.record.outcome == "broken"


def test_raises_is_broken_when_its_control_is_no_function(shown):
    check.raises("a.b", RuntimeError, fail, control=5)
    assert (shown.record.outcome, shown.record.control) == ("broken", "raised")


def test_raises_fails_when_the_call_raises_something_else(shown):
    check.raises("a.b", ValueError, fail, control=lambda: None)
    assert (shown.record.outcome, shown.record.measured) == ("failed", "RuntimeError: out of memory")


def test_raises_fails_when_the_text_is_another(shown):
    check.raises("a.b", RuntimeError, fail, match="shape", control=lambda: None)
    assert shown.record.outcome == "failed"


def test_a_control_that_raises_the_same_kind_with_another_text_is_rejected(shown):
    check.raises("a.b", RuntimeError, fail, match="memory", control=fail_otherwise)
    assert shown.record.outcome == "passed"


def fail_otherwise():
    raise RuntimeError("shape")


def test_a_skip_is_recorded_with_its_reason(shown):
    check.skip("a.b", "gloo has no all_to_all")
    assert (shown.record.outcome, shown.record.reason) == ("skipped", "gloo has no all_to_all")


def test_the_ledger_keeps_every_record(shown):
    check.equal("a.one", 1, 1, control=2)
    check.skip("a.two", "no card")
    assert [record.outcome for record in check.ledger.records.values()] == ["passed", "skipped"]


@pytest.mark.parametrize("make", [*GOOD.values(), *BAD.values(), *CANNOT_FAIL.values(), *PROVES_NOTHING.values()])
def test_a_record_survives_its_way_through_json(make, shown):
    make()
    assert record_in(json.loads(json.dumps(shown.outputs[-1][1], allow_nan=False))) == check.ledger.records["a.b"]


def test_a_record_says_how_long_the_comparison_took(shown, monkeypatch):
    ticks = iter([10.0, 12.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(ticks))
    check.equal("a.b", 1, 1, control=2)
    assert shown.record.seconds == 2.5


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def speechless():
    raise Speechless


@pytest.mark.parametrize(
    "make",
    [
        lambda: check.equal("a.b", speechless, 1, control=2),
        lambda: check.equal("a.b", 1, 1, control=speechless),
        lambda: check.raises("a.b", ValueError, lambda: int("x"), control=speechless),
    ],
    ids=["value", "control", "control of raises"],
)
def test_an_error_whose_text_cannot_be_read_does_not_stop_the_notebook(make, shown):
    make()
    assert shown.record.outcome == "broken"
