"""Trials of groups of nodes: tells the tasks of a step which ranks to start, waits for their reports, and judges them.

Groups without a node in common can be tried at the same time.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xpulab.fleet.across import links
from xpulab.fleet.across.links import KILLED, LATE, PASSED, RAISED, STOPPED, WRONG, Group, Message, RankReport, Setup
from xpulab.fleet.across.search import Finding
from xpulab.fleet.across.step import GONE, Step

_FIRST_PORT, _LAST_PORT = 10_000, 32_000
"""Below the ports that Linux assigns by itself."""
_SHARED_PORTS = 2
_PORT_ATTEMPTS = 5
_GRACE_SECONDS = 2.0
"""After a rank has failed, the others get this long to fail, too, for a reason of their own."""
_ANSWER_SECONDS = 10.0
"""A task reports a rank that is late at its time limit; it does not answer when nothing has come by this much later."""
_ENDS_A_TRIAL = (RAISED, KILLED, LATE)
_CAUSES = (KILLED, LATE, RAISED, WRONG, STOPPED)
"""Outcomes that fail a group. A rank that was killed is a better reason than one that lost its connection because of it."""


@dataclass(frozen=True)
class Outcome:
    """One trial. reports: of its ranks, in their order, of those that answered. seconds: how long it took."""

    nodes: tuple[str, ...]
    finding: Finding
    reports: tuple[RankReport, ...]
    seconds: float


@dataclass
class _Open:
    """A trial that is not finished."""

    group: Group
    ranks: int
    reports: list[RankReport] = field(default_factory=list)
    taken: str = ""
    stop_at: float = float("inf")
    stopped: bool = False

    @property
    def is_complete(self) -> bool:
        """Whether all of its ranks have reported."""
        return len(self.reports) == self.ranks


class Trials:
    """All trials of a step. outcomes: in their order."""

    def __init__(self, step: Step, setup: Setup, name: str) -> None:
        """name: of the step, "JOB.STEP", from which the ports follow, so that two jobs on a node do not meet."""
        self._step, self._setup = step, setup
        self.outcomes: list[Outcome] = []
        self.gone: dict[str, str] = {}
        ranks_at = Counter(setup.addresses.values())
        self._ports = _SHARED_PORTS + setup.cards * max(ranks_at.values())
        self._slots = (_LAST_PORT - _FIRST_PORT) // self._ports
        self._slot = zlib.crc32(name.encode()) % self._slots
        self._number = 0

    def works(self, nodes: tuple[str, ...]) -> Finding:
        """Try one group."""
        return self.together([nodes], rates=False)[0].finding

    def together(self, groups: Sequence[tuple[str, ...]], rates: bool) -> list[Outcome]:
        """Try groups without a node in common at the same time. rates: measure them, too."""
        done: dict[tuple[str, ...], Outcome] = {}
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            for outcome, port_taken in self._attempt([nodes for nodes in groups if nodes not in done], rates):
                if not port_taken or attempt == _PORT_ATTEMPTS:
                    done[outcome.nodes] = outcome
        found = [done[nodes] for nodes in groups]
        self.outcomes += found
        return found

    def _attempt(self, groups: Sequence[tuple[str, ...]], rates: bool) -> Iterator[tuple[Outcome, bool]]:
        """The outcome of each group, and whether one of its ports was in use."""
        started = time.monotonic()
        waiting = {}
        for nodes in groups:
            self._number += 1
            self._slot = (self._slot + 1) % self._slots
            group = Group(self._number, nodes, _FIRST_PORT + self._slot * self._ports, rates)
            waiting[group.number] = _Open(group, len(nodes) * self._setup.cards)
            if not self._gone_in(group):
                self._step.tell(links.TRIAL, group)
        limit = started + self._setup.start_seconds + self._setup.trial_seconds + _ANSWER_SECONDS
        while waiting:
            for number, trial in list(waiting.items()):
                if self._is_over(trial, limit):
                    del waiting[number]
                    yield self._outcome(trial, time.monotonic() - started), bool(trial.taken)
            if waiting:
                until = min([limit, *(trial.stop_at for trial in waiting.values() if not trial.stopped)])
                self._take(self._step.next(until - time.monotonic()), waiting)

    def _gone_in(self, group: Group) -> bool:
        return not self.gone.keys().isdisjoint(group.nodes)

    def _is_over(self, trial: _Open, limit: float) -> bool:
        """Whether nothing more is to be waited for; ends the other ranks of a trial of which one has failed."""
        now = time.monotonic()
        if not trial.stopped and now >= trial.stop_at:
            trial.stopped = True
            self._step.tell(links.STOP, trial.group)
        return trial.is_complete or bool(trial.taken) or self._gone_in(trial.group) or now >= limit

    def _take(self, message: Message | None, waiting: Mapping[int, _Open]) -> None:
        if message is None:
            return
        kind, fields = message
        if kind == GONE:
            nodes = [fields["node"]] if fields["node"] else list(self._setup.addresses)
            for node in nodes:
                self.gone.setdefault(node, f"its task has ended: {fields['reason']}")
        elif kind == links.PORT_TAKEN and fields["trial"] in waiting:
            waiting[fields["trial"]].taken = f"{fields['node']}: port {fields['ports'][0]} is in use"
        elif kind == links.REPORT and fields["trial"] in waiting:
            trial = waiting[fields["trial"]]
            trial.reports.append(RankReport(**fields))
            if trial.reports[-1].outcome in _ENDS_A_TRIAL:
                trial.stop_at = min(trial.stop_at, time.monotonic() + _GRACE_SECONDS)

    def _outcome(self, trial: _Open, seconds: float) -> Outcome:
        nodes, cards = tuple(trial.group.nodes), self._setup.cards
        reports = tuple(sorted(trial.reports, key=lambda report: report.rank))
        if not trial.is_complete and not trial.stopped:
            self._step.tell(links.STOP, trial.group)
        finding = Finding(False, trial.taken) if trial.taken else judge(nodes, cards, reports, self.gone)
        if not (trial.taken or trial.is_complete or self._gone_in(trial.group)):  # the time was over
            silent = dict.fromkeys(_silent(nodes, cards, reports), "its task does not answer")
            self.gone.update(silent)  # a task that does not answer once is not waited for again
        return Outcome(nodes, finding, reports, seconds)


def _silent(nodes: Sequence[str], cards: int, reports: Sequence[RankReport]) -> list[str]:
    """The nodes of which not all ranks have reported."""
    return [node for node in nodes if sum(report.node == node for report in reports) < cards]


def judge(nodes: Sequence[str], cards: int, reports: Sequence[RankReport], gone: Mapping[str, str]) -> Finding:
    """What the reports say of the group: whether it passed, else why, and the node that they point to.

    gone: nodes whose task has ended or does not answer, with the reason.
    """
    for node in nodes:
        if node in gone:
            return Finding(False, f"{node}: {gone[node]}", node)
    failed = [report for report in reports if report.outcome != PASSED]
    if silent := _silent(nodes, cards, reports):
        return Finding(False, f"{silent[0]}: its task does not answer", silent[0] if len(silent) == 1 else "")
    if not failed:
        return Finding(True)
    first = min(failed, key=lambda report: (_CAUSES.index(report.outcome), _order(report), report.rank))
    alike = {report.node for report in failed if _is_alike(report, first)}
    return Finding(False, f"rank {first.rank} on {first.node}: {first.reason}", first.node if len(alike) == 1 else "")


def _order(report: RankReport) -> int:
    """Among ranks of one outcome the most telling first: the one that is late and has come less far is where the others wait,
    and the one with the most wrong values is where they come from."""
    return {LATE: report.steps, WRONG: -len(report.bad)}.get(report.outcome, 0)


def _is_alike(report: RankReport, first: RankReport) -> bool:
    return report.outcome == first.outcome and _order(report) == _order(first)
