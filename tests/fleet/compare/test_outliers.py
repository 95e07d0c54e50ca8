"""Of machines of one type, those that are red, slow or unlike the others are named, and no other one is."""

from __future__ import annotations

import pytest

from tests.fleet.compare.made_up import BITS, card, check, measurement, measuring, notebook, of, red, result, row
from xpulab.fleet.compare.machines import compare_machines
from xpulab.fleet.runs import read_runs


@pytest.fixture
def outliers(put):
    """outliers(result, ...): those of nodes n0, n1, ... of one type with these results."""

    def compared(*results):
        runs, unreadable = read_runs(put(**{f"n{at}": each for at, each in enumerate(results)}))
        return [each for each in compare_machines(runs, unreadable).findings if each.node]

    return compared


def rates(*values, **changed):
    return [of(measuring(measurement("rate", value)), **changed) for value in values]


def summary(found):
    return [(each.node, each.kind, each.check, each.case) for each in found]


def checks(*each):
    """A run of each of these checks."""
    return [of(one) for one in each]


def with_cards(*cards, **changed):
    return [of(check(), card_facts=each, **changed) for each in cards]


IDLE = [[card(0, serial, link=f"{rate} GT/s x16")] for serial, rate in (("A", "32.0"), ("B", "32.0"), ("C", "2.5"))]
TABLES = [
    check(rows=[row("a"), row("b", measured=value)], digest=bits * 16) for value, bits in ((1.0, "0"), (1.0, "0"), (2.0, "2"))
]
ALIKE = {
    "the same": checks(*(check(seconds=0.1 * at) for at in range(5))),
    "known issues": checks(*(check(outcome="known", measured=at, digest=None, reason="a defect") for at in (1.0, 2.0, 3.0))),
    "messages of exceptions": checks(*(check(measured=f"OSError: no space in /tmp/{at}") for at in range(3))),
    "listed in data/soak.yaml": checks(*(check("collectives.barrier", measured=at, digest=f"{at:016x}") for at in range(3))),
    "no majority of two": checks(check(), check(measured=0.5)),
    "nor of four": checks(check(), check(), check(measured=0.5), check(measured=0.5)),
    "a small difference": rates(10.0, 10.0, 10.0, 9.6),
    "shared cores, a factor of six": rates(6.0, 6.0, 6.0, 1.1, device="cpu"),
    "other conditions": [*rates(10.0, 10.0, 10.0), of(measuring(measurement("rate", 1.0, conditions={"size": "2"})))],
    "an idle link": with_cards(*IDLE),
}


@pytest.mark.parametrize("runs", ALIKE.values(), ids=ALIKE)
def test_machines_of_which_none_is_unlike_the_majority_have_no_outlier(outliers, runs):
    assert outliers(*runs) == []


def other_card(**changed):
    return with_cards([card(0, "A")], [card(0, "B")], [card(0, "C", **changed)])


SIZES = [of(measuring(measurement("memory", mib * 2.0**20, unit="bytes"))) for mib in (100, 100, 120, 50, 100)]
GOOD, DIFFERS, HARDWARE = of(check()), "differs from the majority", "xpulab doctor"
RED_ROWS = red("demo.table", rows=[row("two"), row("four", "failed", measured=3.0)])
TEXT = notebook(check(), outcome="failed", reason="its text differs")
SKIPPED = check(outcome="skipped", measured=None, digest=None, reason="no such card")
REPEAT = "xpulab run 00_demo --check demo.sum --device xpu --cards 1 --level quick"
UNLIKE = {
    "red check": (
        [GOOD, GOOD, result(red(), outcome="failed")],
        {"kind": "red check", "check": "demo.sum", "sentence": "demo.sum measured 2.5, expected < 1", "repeat": REPEAT},
    ),
    "red table": (
        [*checks(check("demo.table"), check("demo.table")), result(RED_ROWS, outcome="failed")],
        {"kind": "red check", "case": "four", "measured": "3", "expected": "< 1"},
    ),
    "red without a check": (
        [GOOD, GOOD, result(TEXT, outcome="failed")],
        {"kind": "red notebook", "sentence": "00_demo is failed: its text differs"},
    ),
    "unfinished, without a vote": ([GOOD, GOOD, of(check(measured=0.9), outcome="running"), GOOD], {"kind": "unfinished"}),
    "another value": ([GOOD, GOOD, of(check(measured=0.5, digest="ff" * 8))], {"kind": DIFFERS, "check": "demo.sum"}),
    "other bits": ([GOOD, GOOD, of(check(digest="ff" * 8))], {"measured": f"0.25 [{'ff' * 8}]", "expected": f"0.25 [{BITS}]"}),
    "a row": (checks(*TABLES), {"kind": DIFFERS, "check": "demo.sum", "case": "b"}),
    "skipped": (
        [of(check("demo.other"), each) for each in (check(), check(), SKIPPED)],
        {"kind": DIFFERS, "measured": "skipped"},
    ),
    "slow": (rates(10.0, 10.1, 8.0, 9.9, 10.05, 13.0), {"kind": "slow", "case": "copy", "measured": "8 GB/s"}),
    "slow, equal rates": (rates(10.0, 10.0, 9.4, 10.0), {"kind": "slow", "check": "demo.rates", "case": "copy"}),
    "slow, shared cores": (rates(6.0, 6.0, 0.9, 6.0, device="cpu"), {"kind": "slow"}),
    "more memory": (SIZES, {"kind": "more memory", "measured": "120.0 MiB", "expected": "at most 102.0 MiB"}),
    "firmware": (other_card(firmware="0.9"), {"measured": "0.9", "repeat": HARDWARE}),
    "link": (other_card(link="32.0 GT/s x8 of 32.0 GT/s x16"), {"measured": "x8", "repeat": HARDWARE}),
    "card memory": (other_card(memory_total_mib=65536), {"measured": "65536", "repeat": HARDWARE}),
}


@pytest.mark.parametrize(("runs", "shown"), UNLIKE.values(), ids=UNLIKE)
def test_the_third_machine_alone_is_named_with_what_it_has_and_the_others_have(outliers, runs, shown):
    (found,) = outliers(*runs)
    assert {name: getattr(found, name) for name in shown} == shown and found.node == "n2"


def test_losses_must_repeat_and_rates_need_not(outliers):
    def training(*losses, rate=10.0):
        return of(measuring(measurement("loss", *losses, unit="nats"), measurement("rate", rate)))

    found = outliers(training(3.0, 2.0), training(3.0, 2.0, rate=10.1), training(3.0, 2.001))
    assert summary(found) == [("n2", "differs from the majority", "demo.rates", "")]


@pytest.mark.parametrize(
    "changed",
    [{"device": "gpu"}, {"level": "smoke"}, {"cards": 2}, {"seed": 3}, {"versions": {"paddlepaddle-xpu": "3.3.1"}},
     {"machine": {"processor": "Kunpeng"}}, {"machine": {"driver": "5.1"}}],
    ids=str,
)  # fmt: skip
def test_machines_of_several_types_are_compared_within_their_type(outliers, changed):
    assert outliers(of(check()), of(check()), of(check(digest="ff" * 8), **changed)) == []
