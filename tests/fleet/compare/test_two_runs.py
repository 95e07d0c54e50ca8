"""Two runs side by side: what is wrong or right now, and what changed by more than it may."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import card, check, measurement, measuring, notebook, of, result, row
from xpulab.errors import InputError
from xpulab.fleet.compare.two_runs import compare_two
from xpulab.fleet.runs import read_runs

OLD, NEW = {"versions": {"paddlepaddle-xpu": "3.2.0"}}, {"versions": {"paddlepaddle-xpu": "3.3.0"}}


@pytest.fixture
def two(put):
    """two(result, result): the comparison of the runs `before` and `after`."""
    return lambda before, after: compare_two(*read_runs(put(before=before, after=after))[0])


@pytest.fixture
def upgrade(two):
    """As `two`, with another version in each."""
    return lambda before, after: two({**before, **OLD}, {**after, **NEW})


def failed(name="demo.sum", **changed):
    return check(name, "failed", measured=2.5, reason="too large", **changed)


def measured(*values, kind="rate", unit="GB/s", case="copy", **changed):
    return of(measuring(measurement(kind, *values, case=case, unit=unit)), **changed)


def losses(*values, **changed):
    return measured(*values, kind="loss", unit="nats", case="losses", **changed)


def memory(mib):
    return measured(mib * 2.0**20, kind="memory", unit="bytes")


def kinds(findings):
    return [(finding.kind, finding.check, finding.case) for finding in findings]


def test_versions_driver_firmware_and_system_that_differ_are_named_and_are_no_finding(two):
    before = of(check(), machine={"driver": "5.0", "system": "Linux 5"}, card_facts=[card(firmware="1")], **OLD)
    after = of(check(), machine={"driver": "5.1", "system": "Linux 6"}, card_facts=[card(firmware="2")], **NEW)
    comparison = two(before, after)
    assert comparison.findings == ()
    for changed in ("xpu differs: 3.2.0, then 3.3.0", "driver differs: 5.0, then 5.1", "system differs", "firmware of card 0"):
        assert any(changed in note for note in comparison.notes), changed


SKIPPED = check(outcome="skipped", measured=None, digest=None, reason="no kernel")
MISSING = check(outcome="missing", measured=None, digest=None, reason="the cell was never reached")
TEXT = result(notebook(check(), outcome="failed", reason="its text differs"), outcome="failed")
BOTH = result(notebook(check()), notebook(check("other.one"), name="01_other"))


@pytest.mark.parametrize(
    ("before", "after", "found", "said"),
    [
        (of(check()), of(failed()), [("now wrong", "demo.sum", "")], "measured 2.5, expected < 1; it was passed"),
        (of(check()), of(check(), failed("demo.new")), [("now wrong", "demo.new", "")], "it was not planned"),
        (of(check()), of(MISSING), [("now wrong", "demo.sum", "")], "the cell was never reached"),
        (of(check()), TEXT, [("now wrong", "", "00_demo")], "00_demo is failed: its text differs"),
        (of(failed()), of(check()), [], ""),
        (of(failed()), of(failed()), [], ""),
        (of(check()), of(check("demo.other"), SKIPPED), [("no longer compared", "demo.sum", "")], "no kernel"),
        (of(check("demo.other"), SKIPPED), of(check("demo.other"), check()), [], ""),
        (of(check(), check("demo.old")), of(check()), [("no longer compared", "demo.old", "")], "not planned any more"),
        (BOTH, of(check()), [("no longer compared", "", "01_other")], "01_other was run before"),
        (
            of(check(rows=[row("a"), row("b")])),
            of(check(rows=[row("a"), row("b", "skipped")])),
            [("no longer compared", "demo.sum", "b")],
            "demo.sum: 1 rows are no longer compared: b",
        ),
        (
            of(failed(rows=[row("a", "failed"), row("b")])),
            of(failed(rows=[row("a", "failed"), row("b", "failed", measured=7.0)])),
            [("now wrong", "demo.sum", "b")],
            "measured 7",
        ),
        (of(check()), of(check(measured=0.5)), [], ""),
        (losses(3.0, 2.0), losses(3.0, 2.001), [], ""),
        (losses(3.0, 2.0), losses(3.0, 2.1), [("other losses", "demo.rates", "losses")], "differ by 0.1 nats"),
        (losses(3.0, 2.0), losses(3.0, "nan"), [("other losses", "demo.rates", "losses")], "differ by nan"),
        (measured(10.0), measured(8.5), [], ""),
        (measured(10.0), measured(7.9), [("slower", "demo.rates", "copy")], "7.9 GB/s; it was 10 GB/s"),
        (measured(10.0), measured(13.0), [], ""),
        (measured(6.0, device="cpu"), measured(1.1, device="cpu"), [], ""),
        (memory(100), memory(120), [("more memory", "demo.rates", "copy")], "120.0 MiB"),
        (memory(120), memory(100), [], ""),
    ],
)
def test_what_is_worse_after_a_change_of_versions_is_found(upgrade, before, after, found, said):
    comparison = upgrade(before, after)
    assert kinds(comparison.findings) == found
    assert all(said in finding.sentence and finding.repeat for finding in comparison.findings)


def test_what_is_wrong_in_both_is_a_note(upgrade):
    assert "wrong before and after: demo.sum" in upgrade(of(failed()), of(failed())).notes


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (of(check()), []),
        (of(check(digest="ff" * 8)), [("other value", "demo.sum", "")]),
        (of(check(measured=0.5)), [("other value", "demo.sum", "")]),
        (of(check(), card_facts=[card(0, link="32.0 GT/s x8")]), [("other value", "", "link width of card 0")]),
        (of(check(), machine={"processor": "Kunpeng"}), []),
    ],
    ids=["the same", "other bits", "another value", "narrower link", "another machine"],
)
def test_on_one_type_of_machine_values_are_the_same_to_the_last_bit(two, after, found):
    cards = after["card_facts"] or [card(0)]
    comparison = two(of(check(), card_facts=[card(0)]), {**after, "card_facts": cards})
    assert kinds(comparison.findings) == found


def test_on_two_devices_losses_have_a_wider_tolerance_and_not_all_checks_are_compared(two):
    before = result(
        notebook(check(), measuring(measurement("loss", 3.0, 2.0, unit="nats")), {**SKIPPED, "name": "demo.other"}),
        device="cpu",
    )
    other = check("demo.gpu", outcome="skipped", measured=None, digest=None, reason="one card")
    after = result(notebook(other, measuring(measurement("loss", 3.0, 2.02, unit="nats"))), device="sim")
    assert kinds(two(before, after).findings) == []
    wrong = two(losses(3.0, 2.0, device="cpu"), losses(3.0, 2.2, device="sim"))
    assert kinds(wrong.findings) == [("other losses", "demo.rates", "losses")]
    assert two(of(check(), device="cpu"), of(check("demo.other"), SKIPPED, device="sim")).findings == ()


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (of(check(), outcome="running"), "has not ended"),
        (of(check(), level="smoke"), "level smoke, but that of .* is quick"),
        (of(check(), seed=1), "seed 1"),
    ],
)
def test_runs_that_computed_something_else_are_refused(two, after, message):
    with pytest.raises(InputError, match=message):
        two(of(check()), after)
