"""Every value of a round is compared with that of the first round with the same seed; what is red is reported as red."""

from __future__ import annotations

import pytest

from xpulab.records.record import Measurement, Record, Row
from xpulab.soak.selection import Selection
from xpulab.soak.values import SEEDS, Place, Values, red_in, seed_of

VARYING = (("bandwidth.*", "*"), ("sft.table", "seconds"))


@pytest.fixture
def values():
    return Values(Selection(("*",), (), VARYING))


def of(name, measured=1.0, digest="aa", outcome="passed", **more):
    return Record(name, outcome, "means", measured, digest=digest, **more)


def row(case, digest, outcome="passed"):
    return Row(case, outcome, 1.0, "", "rejected", None, digest)


def test_every_second_round_has_the_first_seed_and_the_others_take_turns():
    seeds = [seed_of(number, 3) for number in range(1, 2 * SEEDS + 4)]
    assert seeds[:8] == [3, 3, 4, 3, 5, 3, 6, 3]
    assert seeds[2 * SEEDS - 2 :] == [3 + SEEDS - 1, 3, 3, 3, 4]


def test_the_same_values_in_both_rounds_are_no_problem(values, verdict):
    assert values.compare(1, 0, [verdict(of("sft.loss"), of("sft.recall"))]) == (0, [])
    assert values.compare(2, 0, [verdict(of("sft.loss"), of("sft.recall"))]) == (2, [])


@pytest.mark.parametrize("changed", [{"digest": "bb"}, {"measured": 1.5}])
def test_a_value_that_differs_is_reported_with_both_values_and_the_earlier_round(values, verdict, changed):
    values.compare(1, 0, [verdict(of("sft.loss"))])
    compared, [found] = values.compare(2, 0, [verdict(of("sft.loss", **changed))])
    assert (compared, found.kind, found.place) == (1, "difference", Place("02_sft", "sft.loss", ""))
    assert (found.before.digest, found.before.number, found.after.number) == ("aa", 1, 2)
    assert "in round 1 with the same seed 1.0 [aa]" in found.reason


def test_a_round_is_compared_with_the_first_one_of_its_seed_not_with_the_last(values, verdict):
    values.compare(1, 0, [verdict(of("sft.loss"))])
    values.compare(2, 0, [verdict(of("sft.loss", digest="bb"))])
    assert values.compare(17, 0, [verdict(of("sft.loss"))]) == (1, [])


def test_rounds_with_different_seeds_are_not_compared(values, verdict):
    values.compare(1, 0, [verdict(of("sft.loss"))])
    assert values.compare(2, 1, [verdict(of("sft.loss", digest="bb"))]) == (0, [])


def test_of_a_table_each_row_is_compared(values, verdict):
    values.compare(1, 0, [verdict(of("sft.table", rows=(row("a", "aa"), row("b", "bb"))))])
    compared, [found] = values.compare(2, 0, [verdict(of("sft.table", rows=(row("a", "aa"), row("b", "cc"))))])
    assert (compared, found.place.case) == (2, "b")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (of("bandwidth.copy", digest="aa"), of("bandwidth.copy", digest="bb")),
        (of("sft.table", rows=(row("seconds", "aa"),)), of("sft.table", rows=(row("seconds", "bb"),))),
        (of("sft.loss", outcome="known"), of("sft.loss", digest="bb", outcome="known")),
    ],
    ids=["a time", "a row that is a time", "wrong because of a known issue"],
)
def test_what_need_not_repeat_is_not_compared(values, verdict, first, second):
    values.compare(1, 0, [verdict(first)])
    assert values.compare(2, 0, [verdict(second)]) == (0, [])


def test_of_a_check_against_baselines_only_the_losses_are_compared(values, verdict):
    def measured(rate, loss):
        rates = Measurement("rate", "rate", "1/s", (rate,)), Measurement("training", "loss", "nats", (3.0, loss))
        return of("sft.baseline", rows=(row("rate", str(rate)),), measurements=rates)

    values.compare(1, 0, [verdict(measured(1.0, 2.0))])
    assert values.compare(2, 0, [verdict(measured(9.0, 2.0))]) == (1, [])
    _, [found] = values.compare(3, 0, [verdict(measured(1.0, 2.0000001))])
    assert found.place.case == "training"


def test_a_red_value_is_neither_compared_nor_what_later_ones_are_compared_with(values, verdict):
    values.compare(1, 0, [verdict(of("sft.loss", digest="bad", outcome="failed"))])
    assert values.compare(2, 0, [verdict(of("sft.loss"))]) == (0, [])
    assert values.compare(3, 0, [verdict(of("sft.loss", digest="bad", outcome="failed"))]) == (0, [])


def test_of_an_exception_only_the_type_is_compared(values, verdict):
    values.compare(1, 0, [verdict(of("sft.raises", "ValueError: /tmp/a is damaged", None))])
    assert values.compare(2, 0, [verdict(of("sft.raises", "ValueError: /tmp/b is damaged", None))]) == (1, [])
    assert len(values.compare(3, 0, [verdict(of("sft.raises", "OSError: /tmp/a is damaged", None))])[1]) == 1


def test_a_check_that_is_skipped_after_it_compared_is_a_difference(values, verdict):
    values.compare(1, 0, [verdict(of("sft.loss"))])
    _, [found] = values.compare(2, 0, [verdict(of("sft.loss", None, None, "skipped"))])
    assert found.after.measured == "skipped"


def test_a_red_check_and_a_notebook_that_stopped_are_problems(verdict):
    failed = of("sft.loss", 3.0, outcome="failed", expected="< 1", reason="too large")
    missing = Record("sft.recall", "missing", "never ran")
    found = red_in([verdict(failed, missing, outcome="failed", stopped="the kernel died in cell 3")])
    assert [each.place.check for each in found] == ["sft.loss", "the notebook"]
    assert found[0].reason == "failed, measured 3.0, expected < 1; too large"
    assert found[1].reason == "the kernel died in cell 3"


def test_a_green_notebook_has_no_problem(verdict):
    assert red_in([verdict(of("sft.loss"), of("sft.known", outcome="known")), verdict(of("a.b"), outcome="skipped")]) == []
