"""The same chapters on several devices: what only one of them compared, and values that do not agree."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import check, measurement, measuring, notebook, of, result, row, table
from xpulab.errors import InputError
from xpulab.fleet.compare.parity import compare_devices
from xpulab.fleet.runs import read_runs


@pytest.fixture
def parity(put):
    """parity(cpu=result, sim=result, ...): the comparison of these runs, each named like its device."""

    def compared(**results):
        return compare_devices(read_runs(put(**{name: {**each, "device": name} for name, each in results.items()}))[0])

    return compared


def training(*losses):
    return of(measuring(measurement("loss", *losses, case="losses", unit="nats")))


def test_devices_that_agree_have_no_finding(parity):
    comparison = parity(cpu=of(check()), sim=of(check()), gpu=of(check()), xpu=of(check()))
    assert comparison.findings == ()
    assert comparison.subject == "cpu, sim, gpu, xpu at level quick"
    assert table(comparison, "Checks that compared").rows[0][:5] == ("00_demo", *["1 of 1"] * 4)


TEXT = result(notebook(check(), outcome="failed", reason="its text differs"), outcome="failed")


@pytest.mark.parametrize(
    ("cpu", "xpu", "kind", "said"),
    [
        (
            of(check()),
            of(check(outcome="failed", measured=2.5)),
            "wrong",
            "xpu: demo.sum measured 2.5, expected < 1; cpu: passed",
        ),
        (of(check()), TEXT, "wrong", "xpu: 00_demo is failed: its text differs"),
        (of(check(), check("demo.more")), of(check()), "missing check", "demo.more"),
    ],
)
def test_what_is_red_or_missing_on_one_device_is_found_there(parity, cpu, xpu, kind, said):
    (found,) = parity(cpu=cpu, xpu=xpu).findings
    assert (found.kind, found.node) == (kind, "xpu") and said in found.sentence


def test_a_chapter_that_one_device_did_not_run_is_a_note(parity):
    both = result(notebook(check()), notebook(check("other.one"), name="01_other"))
    comparison = parity(cpu=both, sim=of(check()))
    assert comparison.findings == ()
    assert "01_other was not run on sim, so it is not compared there" in comparison.notes


def test_a_check_that_only_one_device_compares_is_listed_with_the_reason(parity):
    skipped = check(outcome="skipped", measured=None, digest=None, reason="gloo has no all_to_all")
    comparison = parity(cpu=of(skipped), sim=of(check()))
    assert comparison.findings == ()
    rows = table(comparison, "Compared on one device").rows
    assert rows == (("00_demo", "demo.sum", "sim", "cpu", "gloo has no all_to_all"),)


def test_rows_that_only_one_device_compares_are_counted(parity):
    tables = [check(rows=[row("a"), row("b", outcome, reason="no float8")]) for outcome in ("passed", "skipped")]
    (listed,) = table(parity(cpu=of(tables[0]), xpu=of(tables[1])), "Compared on one device").rows
    assert listed[2:] == ("cpu", "xpu", "1 rows: b: no float8")


def test_losses_may_differ_by_a_hundredth_of_the_largest(parity):
    near = parity(cpu=training(3.0, 2.0), xpu=training(3.0, 2.02))
    assert near.findings == ()
    assert table(near, "Losses").rows[0][:5] == ("demo.rates", "losses", 2, 2.0, 2.02)
    (found,) = parity(cpu=training(3.0, 2.0), xpu=training(3.0, 2.1)).findings
    assert (found.kind, found.node) == ("other losses", "xpu") and "differ by 0.1, more than 0.03" in found.sentence


def test_a_value_near_its_tolerance_on_one_device_only_is_listed(parity):
    comparison = parity(cpu=of(check(measured=0.01)), xpu=of(check(measured=0.8)))
    assert comparison.findings == ()
    assert table(comparison, "Near the tolerance").rows == (("demo.sum", "", 0.01, 0.8),)


def test_a_known_issue_of_one_device_is_listed(parity):
    known = check(outcome="known", digest=None, reason="a defect")
    comparison = parity(cpu=of(known), sim=of(check()))
    assert comparison.findings == ()
    assert table(comparison, "Known issues").rows == (("demo.sum", "known", "passed"),)


def test_other_versions_and_cards_are_notes(parity):
    other = of(check(), cards=2, versions={"paddlepaddle-xpu": "3.2.0"})
    notes = parity(cpu=of(check()), sim=other).notes
    assert "cards differs: cpu 1, sim 2" in notes and "paddlepaddle-xpu differs: cpu 3.3.0, sim 3.2.0" in notes


def test_two_runs_of_one_device_and_devices_without_a_common_chapter_are_refused(put):
    one, other = of(check(), device="cpu"), result(notebook(check(), name="01_other"), device="sim")
    with pytest.raises(InputError, match="2 runs on cpu"):
        compare_devices(read_runs(put(a=one, b=one))[0])
    with pytest.raises(InputError, match="no chapter in common"):
        compare_devices(read_runs(put(a=one, b=other))[0])


@pytest.mark.parametrize("changed", [{"level": "smoke"}, {"seed": 1}, {"outcome": "running"}], ids=str)
def test_devices_must_have_run_the_same(parity, changed):
    with pytest.raises(InputError):
        parity(cpu=of(check()), sim=of(check(), **changed))
