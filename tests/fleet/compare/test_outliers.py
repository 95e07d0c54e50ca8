"""Of machines of one type, those that are red, slow or unlike the others are named, and no other one is."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import card, check, measurement, measuring, notebook, red, result, row
from xpulab.errors import InputError
from xpulab.fleet.outliers import MACHINE_MEMORY as MEMORY
from xpulab.fleet.outliers import find_outliers
from xpulab.fleet.runs import read_runs


@pytest.fixture
def outliers(put):
    """outliers(result, ...): those of nodes n0, n1, ... with these results."""
    return lambda *results: find_outliers(read_runs(put(**{f"n{at}": each for at, each in enumerate(results)}))[0])


def of(*checks, **changed):
    return result(notebook(*checks), **changed)


def rates(*values, **changed):
    return [of(measuring(measurement("rate", value)), **changed) for value in values]


def summary(found):
    return [(each.node, each.kind, each.check, each.case) for each in found]


@pytest.mark.parametrize(
    "checks",
    [
        [check(seconds=0.1 * at) for at in range(5)],
        [check(outcome="known", measured=value, digest=None, reason="a defect") for value in (1.0, 2.0, 3.0)],
        [check(measured=f"OSError: no space in /tmp/{at}") for at in range(3)],
        [check("collectives.barrier", measured=float(at), digest=f"{at:016x}") for at in range(3)],
        [check(), check(measured=0.5)],
        [check(), check(), check(measured=0.5), check(measured=0.5)],
    ],
    ids=["the same", "known issues", "messages of exceptions", "listed in data/soak.yaml", "no majority of two", "nor of four"],
)
def test_machines_of_which_none_is_unlike_the_majority_have_no_outlier(outliers, checks):
    assert outliers(*map(of, checks)) == ()


def test_a_red_check_is_named_with_the_command_that_repeats_it(outliers):
    (found,) = outliers(of(check()), of(check()), result(red(), outcome="failed"))
    assert summary([found]) == [("n2", "red check", "demo.sum", "")]
    assert found.sentence == "demo.sum measured 2.5, expected < 1"
    assert found.repeat == "xpulab run 00_demo --check demo.sum --device xpu --cards 1 --level quick"


def test_of_a_red_table_the_first_red_row_is_named(outliers):
    table = red(measured_rows := "demo.table", rows=[row("two"), row("four", "failed", measured=3.0)])
    (found,) = outliers(*[of(check(measured_rows))] * 2, result(table, outcome="failed"))
    assert (found.case, found.measured, found.expected) == ("four", "3", "< 1")


def test_a_red_notebook_without_a_red_check_is_named_with_its_reason(outliers):
    other = notebook(check(), outcome="failed", reason="its text differs")
    (found,) = outliers(of(check()), of(check()), result(other, outcome="failed"))
    assert (found.kind, found.sentence) == ("red notebook", "00_demo is failed: its text differs")


def test_an_unfinished_run_is_named_and_has_no_vote(outliers):
    killed = of(check(measured=0.9), outcome="running")
    assert summary(outliers(of(check()), killed, of(check()), of(check()))) == [("n1", "unfinished", "", "")]


def test_a_check_or_a_chapter_that_most_runs_have_is_missing(outliers):
    both = result(notebook(check(), check("demo.more")), notebook(check("other.one"), name="01_other"))
    without = result(notebook(check()))
    found = outliers(both, both, without)
    assert summary(found) == [("n2", "missing check", "demo.more", ""), ("n2", "missing check", "", "")]
    assert "01_other is not in this run, but in 2 of 3" in found[1].sentence


def test_another_value_than_that_of_the_majority_is_named(outliers):
    (found,) = outliers(of(check()), of(check(measured=0.5, digest="ff" * 8)), of(check()))
    assert summary([found]) == [("n1", "differs from the majority", "demo.sum", "")]
    assert "2 of 3 nodes have 0.25" in found.sentence


def test_other_bits_are_named_where_the_measured_value_is_the_same(outliers):
    (found,) = outliers(of(check()), of(check()), of(check(digest="ff" * 8)))
    assert (found.node, found.measured, found.expected) == ("n2", f"0.25 [{'ff' * 8}]", "0.25 [00112233445566aa]")


def test_of_a_table_the_rows_that_differ_are_named(outliers):
    tables = [check(rows=[row("a"), row("b", measured=value)], digest=f"{at:016x}") for at, value in enumerate((1.0, 1.0, 2.0))]
    tables[1]["digest"] = tables[0]["digest"]
    assert summary(outliers(*map(of, tables))) == [("n2", "differs from the majority", "demo.sum", "b")]


def test_a_check_that_only_one_machine_skips_differs(outliers):
    skipped = check(outcome="skipped", measured=None, digest=None, reason="no such card")
    (found,) = outliers(of(check()), of(check()), of(skipped))
    assert (found.kind, found.measured) == ("differs from the majority", "skipped")


def test_losses_must_repeat_and_rates_need_not(outliers):
    def training(*losses, rate=10.0):
        return of(measuring(measurement("loss", *losses, unit="nats"), measurement("rate", rate)))

    found = outliers(training(3.0, 2.0), training(3.0, 2.0, rate=10.1), training(3.0, 2.001))
    assert summary(found) == [("n2", "differs from the majority", "demo.rates", "")]


def test_only_a_rate_far_below_the_median_is_slow(outliers):
    (found,) = outliers(*rates(10.0, 10.1, 9.9, 10.05, 8.0, 13.0))
    assert summary([found]) == [("n4", "slow", "demo.rates", "copy")]
    assert found.measured == "8 GB/s" and found.expected.startswith("at least 9.")


def test_equal_rates_have_no_deviation_and_small_differences_do_not_count(outliers):
    assert outliers(*rates(10.0, 10.0, 10.0, 9.6)) == ()
    assert summary(outliers(*rates(10.0, 10.0, 10.0, 9.4))) == [("n3", "slow", "demo.rates", "copy")]


def test_on_shared_cores_a_rate_may_differ_by_a_factor_of_six(outliers):
    assert outliers(*rates(6.0, 6.0, 6.0, 1.1, device="cpu")) == ()
    assert [each.node for each in outliers(*rates(6.0, 6.0, 6.0, 0.9, device="cpu"))] == ["n3"]


def test_only_more_memory_than_the_others_counts(outliers):
    sizes = [of(measuring(measurement("memory", mib * 2.0**20, unit="bytes"))) for mib in (100, 100, 100, 120, 50)]
    (found,) = outliers(*sizes)
    assert (found.node, found.kind, found.measured, found.expected) == ("n3", "more memory", "120.0 MiB", "at most 102.0 MiB")


def test_rates_under_other_conditions_are_not_compared(outliers):
    other = of(measuring(measurement("rate", 1.0, conditions={"size": "2"})))
    assert outliers(*rates(10.0, 10.0, 10.0), other) == ()


def test_the_card_of_a_slow_rate_is_named_with_its_serial_number(outliers):
    nodes = [
        of(measuring(measurement("rate", rate, case="copy, card 1")), card_facts=[card(0, f"A{at}"), card(1, f"B{at}")])
        for at, rate in enumerate((10.0, 10.0, 10.0, 5.0))
    ]
    (found,) = outliers(*nodes)
    assert "(card 1, serial number B3)" in found.sentence


def test_a_card_of_two_nodes_and_one_twice_in_a_node_are_named(outliers):
    nodes = [[card(0, "A"), card(1, "B")], [card(0, "C"), card(1, "A")], [card(0, "D"), card(1, "D")]]
    found = outliers(*[of(check(), card_facts=cards) for cards in nodes])
    assert [(each.node, each.case, each.measured) for each in found] == [
        ("n0", "card 0", "A"),
        ("n1", "card 1", "A"),
        ("n2", "card 0", "D"),
        ("n2", "card 1", "D"),
    ]
    assert found[0].sentence == "card 0 has serial number A, and so has card 1 of n1"


def test_gpus_of_one_board_may_share_a_serial_number_and_no_number_is_none(outliers):
    boards = [of(check(), device="gpu", card_facts=[card(0, f"S{at}"), card(1, f"S{at}")]) for at in range(3)]
    assert outliers(*boards) == ()
    assert outliers(*[of(check(), card_facts=[card(0, "N/A"), card(1, None)]) for _ in range(3)]) == ()


def test_an_idle_link_may_have_a_lower_rate(outliers):
    cards = [card(0, serial, link=link) for serial, link in zip("ABC", ["32.0 GT/s x16"] * 2 + ["2.5 GT/s x16"], strict=True)]
    assert outliers(*[of(check(), card_facts=[each]) for each in cards]) == ()


@pytest.mark.parametrize(
    ("field", "other", "shown"),
    [("firmware", "0.9", "0.9"), ("link", "32.0 GT/s x8 of 32.0 GT/s x16", "x8"), ("memory_total_mib", 65536, "65536")],
)
def test_another_firmware_link_width_or_memory_of_a_card_is_named(outliers, field, other, shown):
    cards = [card(0, "A"), card(0, "B"), card(0, "C", **{field: other})]
    (found,) = outliers(*[of(check(), card_facts=[each]) for each in cards])
    assert (found.node, found.measured, found.repeat) == ("n2", shown, "xpulab doctor")


def test_less_memory_of_a_machine_is_named(outliers):
    (found,) = outliers(*[of(check(), machine={"memory_gib": size}) for size in (1007.5, 1007.4, 943.4)])
    assert (found.node, found.case, found.measured, found.expected) == ("n2", MEMORY, "943.4 GiB", "1007.4 GiB")


@pytest.mark.parametrize(
    "changed",
    [{"device": "gpu"}, {"level": "smoke"}, {"cards": 2}, {"seed": 3}, {"versions": {"paddlepaddle-xpu": "3.3.1"}},
     {"machine": {"processor": "Kunpeng"}}, {"machine": {"driver": "5.1"}}],
    ids=str,
)  # fmt: skip
def test_machines_of_several_types_are_refused_with_their_groups(outliers, changed):
    with pytest.raises(InputError, match=r"2 types of machines.*2 runs \(n0, n1\).*1 run \(n2\)") as refused:
        outliers(of(check()), of(check()), of(check(), **changed))
    assert "--mixed" in str(refused.value)


def test_outliers_are_ordered_by_kind_and_then_by_node(outliers):
    found = outliers(*rates(5.0, 10.0, 10.0, 10.0), result(red(), outcome="failed"), of(check(), outcome="running"))
    assert [(each.node, each.kind) for each in found][:3] == [
        ("n5", "unfinished"),
        ("n4", "red check"),
        ("n4", "missing check"),
    ]
    assert [(each.node, each.kind) for each in found][-1] == ("n0", "slow")
