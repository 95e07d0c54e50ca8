"""A check passes only when its value is right and its control was rejected for being wrong."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from xpulab.checks import check
from xpulab.records.record import record_in


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
    "equal, None": lambda: check.equal("a.b", ["x", "y"], ["x", "y"], control=None),
    "equal, text instead of a number": lambda: check.equal("a.b", 1, 1, control="other"),
    "equal, other keys": lambda: check.equal("a.b", {"x": 1}, {"x": 1}, control={"y": 2}),
    "equal, NaN": lambda: check.equal("a.b", 1.0, 1.0, control=math.nan),
    "bitwise, another type": lambda: check.bitwise("a.b", np.zeros(1), np.zeros(1), control=np.ones(1, np.float32)),
    "below, NaN": lambda: check.below("a.b", 0.5, 1.0, control=math.nan),
    "below, infinity": lambda: check.below("a.b", 0.5, 1.0, control=math.inf),
    "finite, empty": lambda: check.finite("a.b", [1.0], control=[]),
    "true, None": lambda: check.true("a.b", True, control=None),
    "raises, another exception": lambda: check.raises("a.b", ValueError, lambda: int("x"), control=fail),
}


TABLES = {
    ("passed", "rejected"): GOOD,
    ("failed", "rejected"): BAD,
    ("broken", "accepted"): CANNOT_FAIL,
    ("broken", "incomparable"): INCOMPARABLE_CONTROL,
}


@pytest.mark.parametrize(
    ("make", "ends"),
    [pytest.param(make, ends, id=f"{ends}: {name}") for ends, table in TABLES.items() for name, make in table.items()],
)
def test_a_check_passes_only_with_the_right_value_and_a_control_that_is_wrong(make, ends, shown):
    make()
    assert (shown.record.outcome, shown.record.control) == ends
    assert bool(shown.record.reason) is (ends[0] != "passed")
    assert record_in(json.loads(json.dumps(shown.outputs[-1][1], allow_nan=False))) == check.ledger.records["a.b"]


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
    "a function as control": (lambda: check.equal("a.b", 1, 1, control=lambda: 2), "passed", "rejected", ""),
    "a relative bound": (lambda: check.close("a.b", 105.0, 100.0, rtol=0.1, control=120.0), "passed", "rejected", ""),
    "raises, its control is no function": (lambda: check.raises("a.b", RuntimeError, fail, control=5), "broken", "raised", ""),
    "another text": (
        lambda: check.raises("a.b", RuntimeError, fail, match="shape", control=lambda: None),
        "failed",
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


def test_a_skip_is_recorded_with_its_reason(shown):
    check.skip("a.b", "gloo has no all_to_all")
    assert (shown.record.outcome, shown.record.reason) == ("skipped", "gloo has no all_to_all")


def fail_to_import():
    raise ImportError("cannot import name 'download' from 'aistudio_sdk.hub'")


def test_a_known_error_of_a_red_check_is_shown_with_cause_and_command(shown):
    check.equal("a.b", fail_to_import, 1, control=2)
    assert "cause: aistudio-sdk 0.3 removed hub.download" in shown.text
    assert "fix: python -m pip install 'aistudio-sdk<0.3'" in shown.text
    assert "aistudio-sdk 0.3 removed hub.download" in shown.html


def test_a_measured_value_cannot_inject_html(shown):
    check.equal("a.b", "<script>", "x", control="y")
    assert "<script>" not in shown.html
