"""Every fault has an effect: a changed value, or an error that names it; no wait is endless."""

from __future__ import annotations

import json

import pytest

from xpulab.errors import InputError
from xpulab.sim import faults
from xpulab.sim.limits import DROP_EXIT_CODE

pytestmark = pytest.mark.integration

UNKNOWN = ["flop copy", "flip", "fail copy often", "fail copy colour=red", "fail copy bytes=5", "fail memory"]
KINDS = {
    "copy": ("h2d", "d2h", "d2d", "p2p", "set"),
    "launch": ("contiguous", "strided_copy", "fill", "embedding_grad", "assign"),
    "collective": ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "send", "recv"),
}
BAD = [
    *UNKNOWN,
    *("fail copy; flip task", "fail copy n=1 n=2", "fail copy n=0", "fail copy n=1x", "fail copy n=\u0663"),
    *("fail copy kind=fill", "fail alloc kind=h2d", "delay copy seconds=nan", "delay copy", "slow copy factor=0.5"),
    *(
        "reorder launch",
        "reorder launch kind=fill",
        "reorder copy kind=h2d",
        "fail copy seconds=1",
        "fail copy n=1 from=2",
        "fail alloc n=1;\n fail copy n=x",
        "fail copy n=99999999999999999999999",
    ),
]
GOOD = [
    "",
    "slow task factor=2.5",
    "reorder launch kind=embedding_grad",
    "drop collective rank=1 n=2",
    *(f"fail {site} kind={kind} n=1000000" for site, kinds in KINDS.items() for kind in kinds),
]


@pytest.fixture(scope="module")
def done(probe):
    """The probe of all faults, which leaves a hanging stream behind, and ends all the same."""
    done = probe("faults", "leave a hanging stream", json.dumps([*BAD, *GOOD]), XPULAB_SIM_TIMEOUT="1")
    assert done.code == 0 and done.saw is not None, done.err[-4000:]
    return done


@pytest.fixture(scope="module")
def saw(done):
    return done.saw


@pytest.mark.parametrize(
    ("case", "seen"),
    {
        "none": [[0, 0, 0], 0],
        "in the end": [[0], 0],
        "after fail alloc": [7.0, 0],
    }.items(),
)
def test_only_what_the_fault_says_is_changed(saw, case, seen):
    assert saw[case] == seen


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ("flip h2d", [0, 128, 0]),
        ("flip between cards", 2),
        ("flip launch", 2.0),
        ("n", [0, 1, 0, 0, 0]),
        ("card", [0]),
        ("another rank", [0]),
        ("from", [0, 1, 1, 1, 1]),
        ("two", [1, 2, 0]),
    ],
)
def test_a_bit_is_flipped_as_the_conditions_require(saw, case, values):
    changed = sum(bool(each) for each in (values if isinstance(values, list) else [values]))
    assert saw[case] == [values, changed]


def test_the_bits_that_are_drawn_are_others_each_time_and_the_same_again(saw):
    first, again = saw["drawn"]
    assert first == again
    assert len({tuple(flipped) for flipped in first}) > 1


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("fail alloc", "alloc on card 0 failed: injected fault 'fail alloc n=1'"),
        ("fail launch", "contiguous on card 0 failed: injected fault 'fail launch'"),
        ("hang launch", "a stream of card 0 hangs: no progress for 3 s"),
        ("lose card", "card 0 is lost"),
        ("allocate on a lost card", "card 0 is lost"),
    ],
)
def test_an_error_names_the_fault(saw, case, says):
    raised, injected = saw[case]
    assert raised.startswith("RuntimeError")
    assert says in raised
    assert injected == 1


def test_a_card_that_adds_in_another_order_does_not_repeat_itself_and_is_not_wrong(saw):
    first, again = saw["repeats itself"]
    (once, twice), injected = saw["reorder"]
    assert first == again
    assert injected == 2
    assert once != twice
    assert max(abs(right - each) for found in (once, twice) for right, each in zip(first, found, strict=True)) < 1e-4


@pytest.mark.parametrize(("case", "value"), [("delay copy", [0]), ("slow task", [[0], 0.0])])
def test_what_is_late_is_right_and_counted(saw, case, value):
    result, injected = saw[case]
    assert result == value
    assert injected > 0


def test_each_injected_fault_is_reported(done):
    assert "xpulab sim: fault injected: flip copy kind=h2d n=2 bit=7 (h2d on card 0)" in done.err


def test_a_process_ends_though_a_card_is_lost(probe):
    assert probe("faults", "leave a lost card", "[]", XPULAB_SIM_TIMEOUT="1").code == 0


def test_a_dropped_process_ends_at_once(probe):
    done = probe("faults", "end", "[]", XPULAB_SIM_FAULTS="drop copy kind=h2d n=1")
    assert done.code == DROP_EXIT_CODE
    assert done.saw is None
    assert "fault injected: drop copy kind=h2d n=1" in done.err


def test_the_plugin_refuses_what_the_grammar_does_not_allow(saw):
    assert saw["refused by the plug-in"] == BAD
    assert len(faults.parse(";".join(GOOD))) == len(GOOD) - 1


@pytest.mark.parametrize("text", UNKNOWN)
def test_an_unknown_word_is_refused_before_a_process_is_started(text):
    with pytest.raises(InputError, match=f"{text!r} is not ACTION SITE KEY=VALUE"):
        faults.parse(f"fail copy n=1; {text}")
