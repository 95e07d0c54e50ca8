"""Trials of groups of nodes: tells the tasks of a step which ranks to start, waits for their reports, and judges them.

Groups without a node in common can be tried at the same time.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from xpulab.fleet.across import links
from xpulab.fleet.across.judged import judged
from xpulab.fleet.across.links import Group, RankReport, Setup
from xpulab.fleet.across.search import Finding
from xpulab.fleet.across.step import GONE

_FIRST_PORT, _LAST_PORT = 10_000, 32_000
"""Below the ports that Linux assigns by itself."""
_SHARED_PORTS = 2
_PORT_ATTEMPTS = 5
_GRACE_SECONDS = 2.0
"""After a rank has failed, the others get this long to fail, too, for a reason of their own."""
_ANSWER_SECONDS = 10.0
"""A task reports a rank that is late at its time limit; it does not answer when nothing has come by this much later."""
_ENDS_A_TRIAL = (links.RAISED, links.KILLED, links.LATE)


class Tasks(Protocol):
    """The step, as trials need it."""

    def tell(self, kind: str, body: Any) -> None: ...
    def next(self, seconds: float) -> tuple[str, dict[str, Any]] | None: ...


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
    reports: list[RankReport] = field(default_factory=list)
    taken: str = ""
    stop_at: float = float("inf")
    stopped: bool = False


class Trials:
    """All trials of a step. outcomes: in their order."""

    def __init__(self, tasks: Tasks, setup: Setup, step: str) -> None:
        """step: "JOB.STEP", from which the ports follow, so that two jobs on a node do not meet."""
        self._tasks, self._setup = tasks, setup
        self.outcomes: list[Outcome] = []
        self.gone: dict[str, str] = {}
        ranks_at = Counter(setup.addresses.values())
        self._ports = _SHARED_PORTS + setup.cards * max(ranks_at.values())
        self._slots = (_LAST_PORT - _FIRST_PORT) // self._ports
        self._slot = zlib.crc32(step.encode()) % self._slots
        self._number = 0

    def works(self, nodes: tuple[str, ...]) -> Finding:
        """Try one group."""
        return self.together([nodes], rates=False)[0].finding

    def together(self, groups: Sequence[tuple[str, ...]], rates: bool) -> list[Outcome]:
        """Try groups without a node in common at the same time. rates: measure them, too."""
        done: dict[tuple[str, ...], Outcome] = {}
        for attempt in range(_PORT_ATTEMPTS):
            left = [nodes for nodes in groups if nodes not in done]
            if not left:
                break
            for trial, outcome in self._attempt(left, rates):
                if not trial.taken or attempt + 1 == _PORT_ATTEMPTS:
                    done[trial.group.nodes] = outcome
        found = [done[nodes] for nodes in groups]
        self.outcomes += found
        return found

    def _attempt(self, groups: Sequence[tuple[str, ...]], rates: bool) -> list[tuple[_Open, Outcome]]:
        started = time.monotonic()
        trials = [_Open(self._next_group(nodes, rates)) for nodes in groups]
        found = []
        for trial in trials:
            if not self.gone.keys() & set(trial.group.nodes):
                self._tasks.tell(links.TRIAL, trial.group)
        limit = started + self._setup.start_seconds + self._setup.trial_seconds + _ANSWER_SECONDS
        waiting = {trial.group.number: trial for trial in trials}
        while waiting:
            for number, trial in list(waiting.items()):
                if self._is_over(trial, limit):
                    del waiting[number]
                    found.append((trial, self._outcome(trial, time.monotonic() - started)))
            if waiting:
                until = min([limit, *(trial.stop_at for trial in waiting.values() if not trial.stopped)])
                self._take(self._tasks.next(until - time.monotonic()), waiting)
        return found

    def _next_group(self, nodes: tuple[str, ...], rates: bool) -> Group:
        self._number += 1
        self._slot = (self._slot + 1) % self._slots
        return Group(self._number, nodes, _FIRST_PORT + self._slot * self._ports, rates)

    def _is_over(self, trial: _Open, limit: float) -> bool:
        """Whether nothing more is to be waited for; ends the other ranks of a trial of which one has failed."""
        now = time.monotonic()
        if not trial.stopped and now >= trial.stop_at:
            trial.stopped = True
            self._tasks.tell(links.STOP, trial.group)
        complete = len(trial.reports) == len(trial.group.nodes) * self._setup.cards
        return complete or bool(trial.taken) or bool(self.gone.keys() & set(trial.group.nodes)) or now >= limit

    def _take(self, message: tuple[str, dict[str, Any]] | None, waiting: Mapping[int, _Open]) -> None:
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
            trial.reports.append(links.report_of({name: value for name, value in fields.items() if name != "task"}))
            if trial.reports[-1].outcome in _ENDS_A_TRIAL:
                trial.stop_at = min(trial.stop_at, time.monotonic() + _GRACE_SECONDS)

    def _outcome(self, trial: _Open, seconds: float) -> Outcome:
        reports = tuple(sorted(trial.reports, key=lambda report: report.rank))
        complete = len(reports) == len(trial.group.nodes) * self._setup.cards
        if not complete and not trial.stopped:
            self._tasks.tell(links.STOP, trial.group)
        finding = judged(trial.group.nodes, self._setup.cards, reports, self.gone)
        if trial.taken:
            finding = Finding(False, trial.taken)
        elif not complete and not self.gone.keys() & set(trial.group.nodes):  # the time was over
            self._note_silent(trial.group.nodes, reports)
        return Outcome(trial.group.nodes, finding, reports, seconds)

    def _note_silent(self, nodes: Sequence[str], reports: Sequence[RankReport]) -> None:
        """A task that does not answer once is not waited for again."""
        for node in nodes:
            if sum(report.node == node for report in reports) < self._setup.cards:
                self.gone.setdefault(node, "its task does not answer")
