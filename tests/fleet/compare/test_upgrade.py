"""One machine before and after a change: what is wrong or right now, and what changed by more than its runs differ."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import card, check, measurement, measuring, notebook, of, result, row, table
from xpulab.errors import InputError
from xpulab.fleet.compare.upgrade import compare_upgrade
from xpulab.fleet.runs import read_runs

OLD, NEW = {"versions": {"paddlepaddle-xpu": "3.2.0"}}, {"versions": {"paddlepaddle-xpu": "3.3.0"}}


@pytest.fixture
def upgrade(put):
    """upgrade([result, ...], [result, ...]): the comparison of runs b0, b1, ... before and a0, a1, ... after."""

    def compared(before, after):
        named = {f"b{at}": {**each, **OLD} for at, each in enumerate(before)}
        named |= {f"a{at}": {**each, **NEW} for at, each in enumerate(after)}
        return compare_upgrade(read_runs(put(**named))[0])

    return compared


def failed(name="demo.sum", **changed):
    return check(name, "failed", measured=2.5, reason="too large", **changed)


def rates(*values):
    return [of(measuring(measurement("rate", value))) for value in values]


def kinds(findings):
    return [(finding.kind, finding.check, finding.case) for finding in findings]


def test_versions_that_differ_are_listed_first_and_nothing_else_is_found(upgrade):
    comparison = upgrade([of(check())], [of(check())])
    assert (comparison.findings, comparison.improvements) == ((), ())
    assert comparison.subject == "before (b0), then after (a0); paddlepaddle-xpu 3.2.0, then 3.3.0"
    assert comparison.tables[0].title == "Versions that differ"
    assert comparison.tables[0].rows == (("paddlepaddle-xpu", "3.2.0", "3.3.0"),)


def test_driver_firmware_and_system_are_versions_too(put):
    before = of(check(), machine={"driver": "5.0", "system": "Linux 5"}, card_facts=[card(firmware="1")])
    after = of(check(), machine={"driver": "5.1", "system": "Linux 6"}, card_facts=[card(firmware="2")])
    comparison = compare_upgrade(read_runs(put(b=before, a=after))[0])
    changed = {"driver": ("5.0", "5.1"), "system": ("Linux 5", "Linux 6"), "firmware": ("1", "2")}
    assert {name: tuple(values) for name, *values in comparison.tables[0].rows} == changed


def test_what_was_wrong_before_is_no_finding_but_a_new_red_row_is(upgrade):
    before = failed(rows=[row("a", "failed"), row("b")])
    same = upgrade([of(before)], [of(before)])
    assert same.findings == () and "wrong before and after: demo.sum" in same.notes
    more = upgrade([of(before)], [of(failed(rows=[row("a", "failed"), row("b", "failed", measured=7.0)]))])
    assert kinds(more.findings) == [("now wrong", "demo.sum", "b")]


def test_new_and_vanished_checks_and_chapters(upgrade):
    before = result(notebook(check(), check("demo.old")), notebook(check("other.one"), name="01_other"))
    comparison = upgrade([before], [of(check(), check("demo.new"))])
    assert kinds(comparison.findings) == [("vanished check", "", "01_other"), ("vanished check", "demo.old", "")]
    assert "1 new checks: demo.new" in comparison.notes


SKIPPED = check(outcome="skipped", measured=None, digest=None, reason="no kernel")
TEXT = result(notebook(check(), outcome="failed", reason="its text differs"), outcome="failed")


@pytest.mark.parametrize(
    ("before", "after", "found", "better", "said"),
    [
        ([of(check())] * 2, [of(check()), of(failed())], "now wrong", None, "2.5, expected < 1; in 1 of 2 runs; it was passed"),
        ([of(failed())], [of(check())], None, "now right", ""),
        ([of(check())], [of(SKIPPED)], "no longer compared", None, ""),
        ([of(SKIPPED)], [of(check())], None, "now compared", ""),
        ([of(check())], [TEXT], "now wrong", None, "00_demo is failed: its text differs"),
        (
            [of(check(rows=[row("a"), row("b")]))],
            [of(check(rows=[row("a"), row("b", "skipped")]))],
            *("no longer compared", None, "demo.sum: 1 rows are no longer compared: b"),
        ),
    ],
)
def test_what_is_worse_is_found_and_what_is_better_is_an_improvement(upgrade, before, after, found, better, said):
    comparison = upgrade(before, after)
    assert [each.kind for each in comparison.findings] == ([found] if found else [])
    assert [each.kind for each in comparison.improvements] == ([better] if better else [])
    assert all(each.check in ("demo.sum", "") for each in (*comparison.findings, *comparison.improvements))
    assert all(said in each.sentence for each in comparison.findings)


def test_a_known_issue_that_comes_or_goes_stands_apart(upgrade):
    known = check(outcome="known", measured=2.0, digest=None, reason="a defect")
    comparison = upgrade([of(known)], [of(check())])
    assert comparison.findings == ()
    assert table(comparison, "Known issues that differ").rows == (("demo.sum", "known", "passed", "a defect"),)


@pytest.mark.parametrize(
    ("before", "within", "beyond"),
    [
        ((10.0, 10.2), (9.4, 9.5), (9.0, 9.1)),  # four spreads
        ((10.0, 11.0), (9.0, 9.5), (8.0, 8.2)),  # the factor of baselines, whatever the spread
        ((10.0, 10.0), (9.6, 9.6), (9.4, 9.4)),  # a twentieth, where runs agree
        ((10.0,), (8.5,), (7.9,)),  # that factor, where single runs show no spread
    ],
)
def test_a_rate_is_slower_beyond_what_its_runs_allow_and_faster_the_other_way(upgrade, before, within, beyond):
    inside = upgrade(rates(*before), rates(*within))
    assert inside.findings == ()
    assert any("a factor of 1.25" in note for note in inside.notes) is (len(before) == 1)
    (found,) = upgrade(rates(*before), rates(*beyond)).findings
    assert (found.kind, found.check, found.case) == ("slower than its spread", "demo.rates", "copy")
    if beyond == (9.0, 9.1):
        assert (found.measured, found.expected) == ("9.05 GB/s", "10.1 GB/s") and "0.8 GB/s is allowed" in found.sentence
    faster = upgrade(rates(*before), rates(15.0, 15.1)).improvements
    assert kinds(faster) == [("faster than its spread", "demo.rates", "copy")]


def test_more_memory_is_found_and_less_is_better(upgrade):
    small, large = ([of(measuring(measurement("memory", size * 2.0**20, unit="bytes")))] for size in (100, 120))
    assert kinds(upgrade(small, large).findings) == [("more memory", "demo.rates", "copy")]
    assert kinds(upgrade(large, small).improvements) == [("less memory", "demo.rates", "copy")]


def test_other_losses_are_found_beyond_a_thousandth(upgrade):
    def training(*losses):
        return of(measuring(measurement("loss", *losses, case="losses", unit="nats")))

    assert upgrade([training(3.0, 2.0)], [training(3.0, 2.001)]).findings == ()
    (found,) = upgrade([training(3.0, 2.0)], [training(3.0, 2.1)]).findings
    assert (found.kind, found.sentence) == ("other losses", "demo.rates, losses: losses differ by 0.1 nats, more than 0.003")


def test_chapters_show_how_many_checks_kept_their_bits(upgrade):
    before = of(check(), check("demo.two"))
    after = of(check(), check("demo.two", digest="ff" * 8))
    chapters = table(upgrade([before], [after]), "Chapters")
    (shown,) = [dict(zip(chapters.columns, each, strict=True)) for each in chapters.rows]
    assert (shown["same bits"], shown["of checks"], shown["before"], shown["after"]) == (1, 2, "passed", "passed")


def test_two_runs_with_the_same_versions_are_a_side_each(put):
    comparison = compare_upgrade(read_runs(put(monday=of(check()), tuesday=of(failed())))[0])
    assert comparison.subject == "monday, then tuesday" and "no version differs between these runs" in comparison.notes
    assert kinds(comparison.findings) == [("now wrong", "demo.sum", "")]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([of(check(), outcome="running", **NEW)], "has not ended"),
        ([of(check(), level="smoke", **NEW)], "level smoke, but that of .* is quick"),
        ([of(check(), seed=1, **NEW)], "seed 1"),
        ([of(check(), machine={"processor": "Kunpeng"}, **NEW)], "not of one machine: processor differ"),
        ([of(check(), card_facts=[card(model="R200")], **NEW)], "not of one machine: installed cards differ"),
        ([of(check(), **NEW), of(check(), versions={"paddlepaddle-xpu": "3.1.0"})], "3 sets of versions"),
    ],
)
def test_runs_that_are_not_one_upgrade_are_refused(put, runs, message):
    with pytest.raises(InputError, match=message):
        compare_upgrade(read_runs(put(b=of(check(), **OLD), **{f"r{at}": each for at, each in enumerate(runs)}))[0])
