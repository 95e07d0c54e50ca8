"""One run: starts the step, tries all nodes, searches when they fail, and measures the rates of the pairs that work."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xpulab.devices import DEVICES, MOST_CARDS
from xpulab.errors import InputError
from xpulab.fleet.across import links, pairs
from xpulab.fleet.across.links import Message, Setup
from xpulab.fleet.across.search import LINK, NODE, PAIR, UNSTABLE, Finding, RootCause, search
from xpulab.fleet.across.step import GONE, Step, addresses, hostnames, srun
from xpulab.fleet.across.trials import Outcome, Trials
from xpulab.fleet.across.verdict import Verdict

_NEVER_WORKED = "its task never became ready"


@dataclass(frozen=True)
class Asked:
    """What a user asks for.

    nodes: a list of nodes, a number of them, or "" for those of the job. device: one of DEVICES. cards: of each node. python:
    the words that start the interpreter on the nodes. options: more options of srun. start_seconds: until all tasks, and each
    rank of a trial, have imported Paddle. trial_seconds: of a trial. most_trials: of the search. seed: of all values. slow: the
    share of the typical rate below which a pair is slow; 0 for none.
    """

    nodes: str
    device: str
    cards: int
    python: tuple[str, ...]
    options: tuple[str, ...]
    start_seconds: float
    trial_seconds: float
    most_trials: int
    seed: int
    slow: float


def run(asked: Asked, say: Callable[[str], None]) -> Verdict:
    """Do it; say: shows one line of progress. Raises InputError when no task starts."""
    if asked.device not in DEVICES:
        raise InputError(f"no device {asked.device!r}: choose {', '.join(DEVICES)}")
    if not 1 <= asked.cards <= MOST_CARDS:
        raise InputError(f"--cards {asked.cards}: choose 1 to {MOST_CARDS}")
    started = time.monotonic()
    command = srun(asked.nodes, asked.cards, asked.python, asked.options, os.environ)
    with Step(command, os.environ) as step:
        tasks = _Tasks(step, asked)
        say(f"{len(tasks.nodes)} nodes have started: {', '.join(tasks.nodes[:8])}{' ...' if len(tasks.nodes) > 8 else ''}")
        ready = tasks.wait_until_ready()
        trials = Trials(step, tasks.setup, tasks.step_name)
        found = search(ready, _told(trials, say), asked.most_trials) if ready else None
        causes = [*tasks.never_ready(), *(found.causes if found else ())]
        good = [node for node in ready if not any(each.kind == NODE and node in each.nodes for each in causes)]
        rates, more = _measure(trials, good, causes, asked.slow, say)
    return Verdict(
        device=asked.device,
        cards=asked.cards,
        nodes=tasks.nodes,
        addresses=tasks.setup.addresses,
        step=tasks.step_name,
        causes=(*causes, *more),
        complete=found is None or found.complete,
        outcomes=tuple(trials.outcomes),
        rates=rates,
        seconds=time.monotonic() - started,
    )


class _Tasks:
    """The start of the tasks: which nodes there are, and which are ready."""

    def __init__(self, step: Step, asked: Asked) -> None:
        """Wait for the first task; what it says of the step is true of all."""
        self._step, self._asked = step, asked
        self._end = time.monotonic() + asked.start_seconds
        self._problems: dict[str, str] = {}
        self._ready: Counter[str] = Counter()
        place = self._first_place()
        self.step_name = place["step"]
        self.nodes = hostnames(place["step_nodes"])
        limits = (asked.start_seconds, asked.trial_seconds)
        self.setup = Setup(asked.device, asked.cards, addresses(self.nodes), asked.seed, *limits)
        step.tell(links.SETUP, self.setup)

    def wait_until_ready(self) -> list[str]:
        """The nodes of which all tasks are ready, in the order of the list."""
        cards = self._asked.cards
        while any(self._ready[node] < cards and node not in self._problems for node in self.nodes):
            if (left := self._end - time.monotonic()) <= 0:
                break
            self._take(self._step.next(left))
        ready = [node for node in self.nodes if self._ready[node] == cards and node not in self._problems]
        for node in self.nodes:
            if node not in ready:
                self._problems.setdefault(node, f"no answer within {self._asked.start_seconds:.0f} s")
        return ready

    def never_ready(self) -> list[RootCause]:
        """The nodes that cannot be tried."""
        return [RootCause(NODE, (node,), reason, _NEVER_WORKED) for node, reason in self._problems.items()]

    def _first_place(self) -> dict[str, Any]:
        while (left := self._end - time.monotonic()) > 0:
            message = self._step.next(left)
            if message is not None and message[0] == GONE and not message[1]["node"]:
                raise InputError(f"no task has started. {self._step.errors()}")
            self._take(message)
            if message is not None and message[0] == links.HELLO:
                return message[1]
        raise InputError(
            f"no task has started within {self._asked.start_seconds:.0f} s (--start-limit). srun:\n{self._step.errors()}"
        )

    def _take(self, message: Message | None) -> None:
        if message is None:
            return
        kind, fields = message
        if kind == links.READY:
            self._ready[fields["node"]] += 1
            if fields["problem"]:
                self._problems[fields["node"]] = fields["problem"]
        elif kind == GONE:
            for node in [fields["node"]] if fields["node"] else self.nodes:
                self._problems.setdefault(node, f"its task has ended: {fields['reason']}")


def _told(trials: Trials, say: Callable[[str], None]) -> Callable[[tuple[str, ...]], Finding]:
    def works(nodes: tuple[str, ...]) -> Finding:
        finding = trials.works(nodes)
        names = ", ".join(nodes) if len(nodes) <= 4 else f"{nodes[0]} ... {nodes[-1]} ({len(nodes)} nodes)"
        say(f"{'passed' if finding.passed else 'failed'}  {names}{'' if finding.passed else f': {finding.reason}'}")
        return finding

    return works


def _measure(
    trials: Trials, nodes: Sequence[str], causes: Sequence[RootCause], share: float, say: Callable[[str], None]
) -> tuple[dict[pairs.Pair, float], list[RootCause]]:
    """The rates of pairs that are not bad; and what is slow, or fails only now."""
    bad = {frozenset(each.nodes) for each in causes if each.kind in (LINK, PAIR)}
    rates: dict[pairs.Pair, float] = {}
    failed: list[RootCause] = []
    for together in pairs.rounds(nodes) if len(nodes) > 1 else []:
        wanted = [pair for pair in together if frozenset(pair) not in bad]
        for outcome in trials.together(wanted, rates=True) if wanted else []:
            pair = (outcome.nodes[0], outcome.nodes[1])
            if outcome.finding.passed:
                rates[pair] = _rate(outcome)
            else:
                failed.append(
                    RootCause(UNSTABLE, pair, outcome.finding.reason, "it failed as a pair, and passed with others before")
                )
    if rates:
        say(f"rates of {len(rates)} pairs are measured")
    return rates, [*failed, *pairs.slow(rates, share)]


def _rate(outcome: Outcome) -> float:
    """GB/s of messages between the two nodes, or of all_reduce where that was not measured; of the slowest rank."""
    names = set.intersection(*(set(report.rates) for report in outcome.reports))
    name = "messages" if "messages" in names else "all_reduce"
    return min(report.rates[name] for report in outcome.reports)
