"""The search for bad nodes and links, on simulated nodes: what it finds, and how many groups it tries."""

from __future__ import annotations

import random
from math import ceil, log2

import pytest

from xpulab.fleet.across.search import GROUP, LINK, NODE, PAIR, UNSTABLE, Finding, search

SIZES = (2, 3, 4, 8, 17, 100, 1000)


def nodes(n):
    return [f"node{number}" for number in range(1, n + 1)]


def works(alone=(), together=(), links=(), suspect=lambda group: ""):
    """Nodes that fail alone; nodes that fail with any other; links that are bad."""

    def tried(group):
        bad = [f"{node} computes wrong values" for node in alone if node in group]
        bad += [f"{node} reaches no other" for node in together if node in group and len(group) > 1]
        bad += [f"{a} does not reach {b}" for a, b in links if a in group and b in group]
        return Finding(not bad, bad[0] if bad else "", suspect(group) if bad else "")

    return tried


def named(found):
    return {(each.kind, each.nodes) for each in found.causes}


@pytest.mark.parametrize("n", SIZES)
def test_nodes_that_work_are_tried_once(n):
    found = search(nodes(n), works())
    assert (found.causes, len(found.trials), found.complete) == ((), 1, True)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.99])
def test_a_node_that_fails_alone_is_found(n, place):
    bad = nodes(n)[int(place * n)]
    found = search(nodes(n), works(alone=[bad]))
    assert named(found) == {(NODE, (bad,))}
    assert found.causes[0].reason == f"{bad} computes wrong values"
    assert len(found.trials) <= ceil(log2(n)) + 7


@pytest.mark.parametrize("n", SIZES[1:])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.99])
def test_a_node_that_fails_only_with_others_is_found(n, place):
    bad = nodes(n)[int(place * n)]
    found = search(nodes(n), works(together=[bad]))
    assert named(found) == {(NODE, (bad,))}
    assert len(found.trials) <= ceil(log2(n)) + 7


@pytest.mark.parametrize("n", SIZES[1:])
@pytest.mark.parametrize("ends", [(0.0, 0.4), (0.0, 0.99), (0.4, 0.99), (0.3, 0.7)])
def test_a_bad_link_is_found(n, ends):
    link = tuple(nodes(n)[int(place * n)] for place in ends)
    if link[0] == link[1]:
        pytest.skip("too few nodes for these places")
    found = search(nodes(n), works(links=[link]))
    assert named(found) == {(LINK, link)}
    assert len(found.trials) <= 2 * ceil(log2(n)) + 10


def test_a_thousand_nodes_need_about_a_dozen_trials_for_each_of_two_bad_ones():
    found = search(nodes(1000), works(alone=["node17"], together=["node600"]))
    assert named(found) == {(NODE, ("node17",)), (NODE, ("node600",))}
    assert len(found.trials) <= 30


def test_a_bad_node_and_two_bad_links_are_told_apart():
    found = search(nodes(64), works(together=["node9"], links=[("node3", "node40"), ("node41", "node64")]))
    assert named(found) == {(NODE, ("node9",)), (LINK, ("node3", "node40")), (LINK, ("node41", "node64"))}


def test_the_reports_of_the_ranks_make_the_search_short():
    found = search(nodes(1000), works(together=["node600"], suspect=lambda group: "node600"))
    assert named(found) == {(NODE, ("node600",))}
    assert len(found.trials) <= 6


def test_reports_that_point_to_the_wrong_node_cost_one_trial():
    found = search(nodes(1000), works(together=["node600"], suspect=lambda group: group[-1]))
    assert named(found) == {(NODE, ("node600",))}
    assert len(found.trials) <= ceil(log2(1000)) + 7


def test_of_two_nodes_without_a_third_it_is_not_said_which_is_bad():
    found = search(nodes(2), works(links=[("node1", "node2")]))
    assert named(found) == {(PAIR, ("node1", "node2"))}


def test_all_nodes_are_bad():
    found = search(nodes(5), works(alone=nodes(5)))
    assert named(found) == {(NODE, (node,)) for node in nodes(5)}


def test_a_node_that_reaches_no_other_is_told_from_one_of_which_every_link_is_bad_by_nothing():
    links = [("node2", other) for other in nodes(4) if other != "node2"]
    assert named(search(nodes(4), works(links=links))) == {(NODE, ("node2",))}


@pytest.mark.parametrize("seed", range(30))
def test_a_node_that_fails_now_and_then_is_in_what_is_named(seed):
    drawn = random.Random(seed)

    def tried(group):
        bad = "node5" in group and (len(trials) == 0 or drawn.random() < 0.7)
        trials.append(group)
        return Finding(not bad, "wrong" if bad else "")

    trials = []
    found = search(nodes(16), tried)
    assert found.causes and all("node5" in each.nodes for each in found.causes)
    assert {each.kind for each in found.causes} <= {NODE, LINK, UNSTABLE}


def test_what_failed_once_and_never_again_is_said_to_be_unstable():
    outcomes = iter([Finding(False, "a timeout")])
    found = search(nodes(3), lambda group: next(outcomes, Finding(True)))
    assert [(each.kind, each.reason) for each in found.causes] == [(UNSTABLE, "a timeout")]
    assert found.causes[0].evidence == "the same trial failed 1 of 8 times"


def test_nodes_that_fail_only_all_together_are_named_as_a_group():
    found = search(nodes(6), lambda group: Finding(len(group) < 5, "too many"))
    assert {each.kind for each in found.causes} == {GROUP}


def test_a_search_ends_when_no_trial_is_left():
    found = search(nodes(1000), works(alone=["node17", "node600"]), most_trials=15)
    assert (named(found), found.complete, len(found.trials)) == ({(NODE, ("node17",))}, False, 15)
