"""Pairs of nodes in rounds, and which of their rates are slow."""

from __future__ import annotations

from itertools import combinations

import pytest

from xpulab.fleet.across.pairs import all_pairs, neighbours, rounds, slow, typical
from xpulab.fleet.across.search import LINK, NODE


def nodes(n):
    return [f"node{number:04}" for number in range(1, n + 1)]


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 16])
def test_every_pair_is_in_one_round_and_a_node_once_in_a_round(n):
    found = all_pairs(nodes(n))
    assert len(found) == (n - 1 if n % 2 == 0 else n)
    assert sorted(pair for together in found for pair in together) == sorted(combinations(nodes(n), 2))
    assert all(len({node for pair in together for node in pair}) == 2 * len(together) for together in found)


@pytest.mark.parametrize("n", [17, 18, 1000])
def test_of_many_nodes_each_is_measured_with_two_others_in_few_rounds(n):
    found = neighbours(nodes(n))
    assert found == rounds(nodes(n)) and len(found) <= 3
    assert all(len({node for pair in together for node in pair}) == 2 * len(together) for together in found)
    ends = [node for together in found for pair in together for node in pair]
    assert {ends.count(node) for node in nodes(n)} == {2}


def rates(n, slow_nodes=(), slow_links=()):
    return {
        pair: 1.0 if set(pair) & set(slow_nodes) or pair in slow_links else 10.0 + place / 100
        for place, pair in enumerate(combinations(nodes(n), 2))
    }


@pytest.mark.parametrize("n", [3, 4, 8])
def test_a_node_that_is_slow_with_all_is_told_from_a_slow_link(n):
    assert [(each.kind, each.nodes) for each in slow(rates(n, slow_nodes=["node0002"]), 0.25)] == [(NODE, ("node0002",))]
    link = ("node0001", "node0003")
    assert [(each.kind, each.nodes) for each in slow(rates(n, slow_links=[link]), 0.25)] == [(LINK, link)]
    assert slow(rates(n), 0.25) == [] and slow(rates(n, slow_nodes=["node0002"]), 0.0) == []


def test_one_pair_has_nothing_to_be_compared_with():
    assert slow({("a", "b"): 0.001}, 0.25) == []


def test_the_typical_rate_of_three_nodes_is_not_that_of_the_slow_one():
    assert typical(rates(3, slow_nodes=["node0002"])) > 10
