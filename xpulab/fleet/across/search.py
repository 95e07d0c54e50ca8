"""The search for bad nodes and bad links: groups of nodes are tried, each next one chosen from what was seen before.

    found = search(nodes, works)       # works(group) tries a group, and returns a Finding

A group fails when a bad node is in it, or both ends of a bad link. All nodes are tried first. When they fail, the first
nodes of the list that fail together are found by bisection: the last of them, k, is needed for the failure, because the ones
before it pass without it. Then k is tried alone, and with two of those before it:

- it fails alone, or with each of them: node k is bad
- it fails with one of them only: the link between the two is bad
- it fails with neither: the other end is found by a second bisection among the nodes before k

What is found is left out, and the rest is tried, until it passes. A trial is not repeated, and not made where the outcome
follows: a group in a group that passed passes, and a group around a group that failed fails. One bad node costs at most
log2(n) + 7 trials, one bad link 2 log2(n) + 10.

A failure is a fact; a pass may be luck. When what was seen contradicts itself, as with a node that fails now and then, each
pass is tried again, twice, four and eight times, in the smallest group that ever failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NODE, LINK, PAIR, GROUP, UNSTABLE = "node", "link", "pair", "group", "unstable"

_PARTNERS = 3
"""A node is bad when it fails with this many good partners, or with all where there are fewer."""
_CONFIRMATIONS = 2
"""So often a bad link must fail again."""
_MOST_REPEATS = 8


@dataclass(frozen=True)
class Finding:
    """What the trial of a group found.

    reason: one line, "" when it passed. suspect: the node that the ranks' own reports point to, or "".
    """

    passed: bool
    reason: str = ""
    suspect: str = ""


@dataclass(frozen=True)
class Trial:
    """One trial. group: its nodes, in the order of the list."""

    group: tuple[str, ...]
    finding: Finding


@dataclass(frozen=True)
class RootCause:
    """What makes groups fail.

    kind: NODE; LINK, both ends are good with others; PAIR, two nodes that fail together and no third that could tell more;
    GROUP, nodes that fail together though each smaller group that was tried passes; UNSTABLE, such a group that also passes.
    nodes: one, two or more. reason: of the smallest failed trial. evidence: how it was told, a sentence.
    """

    kind: str
    nodes: tuple[str, ...]
    reason: str
    evidence: str


@dataclass(frozen=True)
class Found:
    """causes: empty when all nodes pass together. trials: in their order. complete: no trial more was allowed when False."""

    causes: tuple[RootCause, ...]
    trials: tuple[Trial, ...]
    complete: bool


def search(nodes: Sequence[str], works: Callable[[tuple[str, ...]], Finding], most_trials: int = 200) -> Found:
    """Find what makes these nodes fail, by trying groups of them with `works`; nodes: each once."""
    evidence = _Evidence(tuple(nodes), works, most_trials)
    causes: list[RootCause] = []
    try:
        _find_all(evidence, causes)
    except _NoTrialLeft:
        return Found(tuple(causes), tuple(evidence.trials), complete=False)
    return Found(tuple(causes), tuple(evidence.trials), complete=True)


class _NoTrialLeft(Exception):
    """The trials that were allowed are used up."""


class _Contradiction(Exception):
    """A group failed, and none of its parts does: a pass was luck, or more than two nodes are needed. Argument: the group."""


class _Evidence:
    """What the trials have shown. nodes: in the order of the list. repeats: so often a group must pass."""

    def __init__(self, nodes: tuple[str, ...], works: Callable[[tuple[str, ...]], Finding], most_trials: int) -> None:
        self.nodes, self.repeats = nodes, 1
        self.trials: list[Trial] = []
        self._works, self._most = works, most_trials
        self._place = {node: place for place, node in enumerate(nodes)}
        self._passes: Counter[frozenset[str]] = Counter()
        self._failures: dict[frozenset[str], Finding] = {}

    def passes(self, group: Sequence[str]) -> bool:
        """Whether a group works: as known from other trials, else as tried. An empty group does."""
        members = frozenset(group)
        if not members or any(self._passes[each] >= self.repeats and members <= each for each in self._passes):
            return True
        if self.failure_in(group) is not None:
            return False
        return all(self.try_again(group) for _ in range(self.repeats - self._passes[members]))

    def try_again(self, group: Sequence[str]) -> bool:
        """Try a group, whatever is known of it."""
        if len(self.trials) == self._most:
            raise _NoTrialLeft
        ordered = self.ordered(group)
        finding = self._works(ordered)
        self.trials.append(Trial(ordered, finding))
        if finding.passed:
            self._passes[frozenset(group)] += 1
        else:
            self._failures[frozenset(group)] = finding
        return finding.passed

    def ordered(self, group: Sequence[str]) -> tuple[str, ...]:
        """These nodes in the order of the list."""
        return tuple(sorted(group, key=lambda node: self._place[node]))

    def failure_in(self, group: Sequence[str]) -> frozenset[str] | None:
        """The smallest group within this one that failed."""
        members = frozenset(group)
        return min((each for each in self._failures if each <= members), key=len, default=None)

    def finding_of(self, group: Sequence[str]) -> Finding:
        """What was found in the smallest group within this one that failed."""
        failed = self.failure_in(group)
        return self._failures[failed] if failed is not None else Finding(True)

    def counts(self, group: Sequence[str]) -> tuple[int, int]:
        """How often a group failed, and how often it was tried."""
        of_group = [trial.finding.passed for trial in self.trials if set(trial.group) == set(group)]
        return of_group.count(False), len(of_group)


def _find_all(evidence: _Evidence, causes: list[RootCause]) -> None:
    waiting: list[tuple[str, ...]] = [evidence.nodes]
    while waiting:
        bad = {node for each in causes if each.kind == NODE for node in each.nodes}
        group = tuple(node for node in waiting.pop() if node not in bad)
        known = next((each for each in causes if each.kind != NODE and set(each.nodes) <= set(group)), None)
        if known is not None:  # without its first node, and without its second
            waiting += [_without(group, node) for node in reversed(known.nodes[:2])]
        elif not evidence.passes(group):
            causes.append(_one(evidence, group, bad))
            waiting.append(group)


def _one(evidence: _Evidence, group: tuple[str, ...], bad: set[str]) -> RootCause:
    """One cause in a group that failed."""
    while True:
        try:
            return _root_cause(evidence, group, bad)
        except _Contradiction as error:
            (failed,) = error.args
            group = tuple(node for node in group if node in failed)
        if evidence.repeats >= _MOST_REPEATS:
            return _unexplained(evidence, group)
        evidence.repeats *= 2


def _root_cause(evidence: _Evidence, group: tuple[str, ...], bad: set[str]) -> RootCause:
    before, last = _divided(evidence, group)
    if not evidence.passes((last,)):
        return RootCause(NODE, (last,), evidence.finding_of((last,)).reason, "it fails alone, with its own cards")
    if len(before) == 0:
        raise _Contradiction(evidence.failure_in(group))
    if len(before) == 1:
        if evidence.passes((*before, last)):
            raise _Contradiction(evidence.failure_in(group))
        return _of_two(evidence, before[0], last, bad)
    failing = [partner for partner in before[:_PARTNERS] if not evidence.passes((partner, last))]
    if len(failing) == len(before[:_PARTNERS]):
        return _bad_node(evidence, last, before[:_PARTNERS])
    if failing:
        return _bad_link(evidence, failing[0], last)
    other = before[_first_that_fails(evidence, before, (last,)) - 1]
    if evidence.passes((other, last)):
        raise _Contradiction(evidence.failure_in(group))
    return _bad_link(evidence, other, last)


def _divided(evidence: _Evidence, group: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Of a group that failed: nodes that pass together, and one with which they fail."""
    suspect = evidence.finding_of(group).suspect
    if suspect in group and len(group) > 1:
        others = _without(group, suspect)
        if evidence.passes(others):
            return others, suspect
        group = others  # what the reports pointed to is tried later, with the nodes that are left
    needed = _first_that_fails(evidence, group, ())
    return group[: needed - 1], group[needed - 1]


def _first_that_fails(evidence: _Evidence, group: tuple[str, ...], beside: tuple[str, ...]) -> int:
    """The fewest first nodes of a group, which fails as a whole, that fail together with those beside them; at least 1."""
    passing, failing = 0, len(group)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if evidence.passes((*group[:middle], *beside)):
            passing = middle
        else:
            failing = middle
    return failing


def _of_two(evidence: _Evidence, one: str, other: str, bad: set[str]) -> RootCause:
    """Two nodes fail together, and each passes alone: a third node tells which it is, or that it is the link."""
    seen = [
        (third, evidence.passes((one, third)), evidence.passes((other, third))) for third in _thirds(evidence, one, other, bad)
    ]
    with_one, with_other = ([third for third, *passed in seen if passed[place]] for place in (0, 1))
    if with_one and with_other:
        return _bad_link(evidence, one, other)
    if with_one:
        return _bad_node(evidence, other, [one, *with_one])
    if with_other:
        return _bad_node(evidence, one, [other, *with_other])
    reason = evidence.finding_of((one, other)).reason
    return RootCause(
        PAIR, (one, other), reason, "each passes alone, and there is no good third node that could tell which it is"
    )


def _thirds(evidence: _Evidence, one: str, other: str, bad: set[str]) -> list[str]:
    """Nodes that pass together with at least one of the two, at most two of them, and none that pass with neither."""
    found: list[str] = []
    for third in evidence.nodes:
        if third in (one, other) or third in bad or len(found) == _PARTNERS - 1:
            continue
        if evidence.passes((one, third)) or evidence.passes((other, third)):
            found.append(third)
    return found


def _bad_node(evidence: _Evidence, node: str, partners: Sequence[str]) -> RootCause:
    reason = evidence.finding_of((*partners, node)).reason
    names = ", ".join(partners)
    if len(partners) == 1:
        told = f"it fails with {names}, which passes with others"
    else:
        told = f"it fails with each of {names}, which pass with others"
    return RootCause(NODE, (node,), reason, told)


def _bad_link(evidence: _Evidence, one: str, other: str) -> RootCause:
    """A link is bad when it fails again and again; else the failure was of another kind."""
    for _ in range(max(_CONFIRMATIONS, evidence.repeats)):
        if evidence.try_again((one, other)):
            raise _Contradiction(frozenset((one, other)))
    reason = evidence.finding_of((one, other)).reason
    return RootCause(LINK, evidence.ordered((one, other)), reason, "the two fail together, and each passes with others")


def _unexplained(evidence: _Evidence, group: tuple[str, ...]) -> RootCause:
    while evidence.counts(group)[1] < _MOST_REPEATS:
        evidence.try_again(group)
    failed, tried = evidence.counts(group)
    reason = evidence.finding_of(group).reason
    if failed == tried:
        return RootCause(GROUP, group, reason, "they fail together, and each smaller group that was tried passes")
    return RootCause(UNSTABLE, group, reason, f"the same trial failed {failed} of {tried} times")


def _without(group: tuple[str, ...], node: str) -> tuple[str, ...]:
    return tuple(each for each in group if each != node)
