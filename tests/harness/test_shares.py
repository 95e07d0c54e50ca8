"""Which cards the notebooks of a run get, and which run beside each other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conftest import GOOD
from xpulab.devices import STANDS_FOR
from xpulab.doctor.meant import EXPECT
from xpulab.harness.plan import read_plan
from xpulab.harness.shares import VISIBLE, Cards


@pytest.fixture
def plans(put):
    """One that needs two cards, one that makes use of all, and two of a single card; the longest first."""
    needs = {"two": (2, 2), "all": (1, 16), "one": (1, 1), "another": (1, 1)}
    made = []
    for budget, (name, (cards, most)) in enumerate(reversed(needs.items()), start=1):
        plan = read_plan(put(name, GOOD, budget=budget), "quick")
        made.append(replace(plan, chapter=replace(plan.chapter, cards=cards, most_cards=most)))
    return made


def names(waves):
    return [([plan.name for plan in wave], at_once) for wave, at_once in waves]


@pytest.mark.parametrize(("device", "cards"), [("cpu", 8), ("sim", 8), ("xpu", 1)])
def test_without_cards_of_their_own_all_run_beside_each_other(plans, device, cards):
    shared = Cards(device, cards, plans, 3)
    assert names(shared.waves) == [(["two", "all", "one", "another"], 3)]
    with shared.share(plans[0]) as share:
        assert share == (cards, {})


@pytest.mark.parametrize(("hidden", "seen"), [("", ["0", "1"]), ("5,7", ["5", "7"])])
def test_on_cards_those_of_one_card_get_one_each(plans, monkeypatch, hidden, seen):
    monkeypatch.setenv(EXPECT, "2")
    monkeypatch.setenv(VISIBLE["xpu"], hidden)
    shared = Cards("xpu", 2, plans, 8)
    assert names(shared.waves) == [(["two", "all"], 1), (["one", "another"], 2)]
    by_name = {plan.name: plan for plan in plans}
    with shared.share(by_name["two"]) as share:
        assert share == (2, {})
    with shared.share(by_name["one"]) as (cards, one), shared.share(by_name["another"]) as (others, another):
        assert (cards, others) == (1, 1)
        assert [variables[VISIBLE["xpu"]] for variables in (one, another)] == seen
        assert one[EXPECT] == "1"
    with shared.share(by_name["another"]) as (_, again):
        assert again[VISIBLE["xpu"]] in seen


def test_a_rehearsal_shares_simulated_cards_in_the_same_way_and_lets_all_run_beside_each_other(plans, monkeypatch):
    monkeypatch.setenv(STANDS_FOR, "gpu")
    shared = Cards("sim", 2, plans, 3)
    assert names(shared.waves) == [(["two", "all", "one", "another"], 3)]
    with shared.share(plans[0]) as one, shared.share(plans[-1]) as several:
        assert (one, several) == ((1, {VISIBLE["gpu"]: "0"}), (2, {}))
