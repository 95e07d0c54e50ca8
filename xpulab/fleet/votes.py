"""What a check measured on each machine of one type, by case, and the majority's vote on it.

With one seed a chapter computes the same bits on every machine of a type: 7,500 values of two runs on the CPU differed only
where data/soak.yaml lists a time, a rate or memory. Those, and what a known issue makes wrong, have no vote.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from xpulab.fleet.finding import place
from xpulab.fleet.runs import Run
from xpulab.soak.selection import selection

NEEDED = 3
"""So few nodes at least must have measured a value for a majority."""

WHOLE = ""
"""The case of a check itself, beside its rows."""

_OF_A_CARD = {"firmware": "firmware", "state": "state", "memory_total_mib": "memory in MiB"}

_WIDTH = re.compile(r"x\d+")
"""Of a link. Its rate is not compared: a card that is idle may lower it."""

_RIGHT = ("passed", "fixed")


@dataclass(frozen=True)
class Ballot:
    """One value of one check and the nodes that measured it. shown: for a report; same text may have other bits."""

    shown: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Vote:
    """A value on which the nodes of one type do not agree.

    notebook, check, case: where; case is WHOLE for the check itself, notebook and check are "" for a fact.
    ballots: by value, most nodes first.
    """

    notebook: str
    check: str
    case: str
    ballots: tuple[Ballot, ...]

    @property
    def where(self) -> str:
        """The place as text."""
        return place(self.check, self.case) if self.check else self.case

    @property
    def nodes(self) -> int:
        """How many nodes voted."""
        return sum(len(ballot.nodes) for ballot in self.ballots)

    @property
    def majority(self) -> Ballot | None:
        """The value of more than half of at least NEEDED nodes."""
        first = self.ballots[0]
        return first if self.nodes >= NEEDED and 2 * len(first.nodes) > self.nodes else None


def disagreements(runs: Sequence[Run]) -> tuple[Vote, ...]:
    """The votes on all values, and on facts of cards, that runs on machines of one type do not share."""
    return (*_on_values(runs), *_on_facts(runs))


def _on_values(runs: Sequence[Run]) -> Iterator[Vote]:
    nodes_of: dict[tuple[str, str], dict[int, tuple[Mapping[str, Any], list[str]]]] = defaultdict(dict)
    for run in runs:
        for notebook, check in run.checks():
            variants = nodes_of[notebook["name"], check["name"]]
            variants.setdefault(id(check), (check, []))[1].append(run.name)  # equal checks of one Reader are one object
    for (of_notebook, name), variants in nodes_of.items():
        if len(variants) > 1:
            yield from _votes_on(of_notebook, name, list(variants.values()))


def _on_facts(runs: Sequence[Run]) -> Iterator[Vote]:
    """The votes on facts of cards that do not belong to the type, but are the same on sound machines."""
    ballots: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for case, value in _facts(run):
            ballots[case][value].append(run.name)
    for case, values in ballots.items():
        if len(values) > 1:
            ordered = sorted(values.items(), key=lambda pair: (-len(pair[1]), pair[0]))
            yield Vote("", "", case, tuple(Ballot(value, tuple(nodes)) for value, nodes in ordered))


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    for card in run.result["card_facts"]:
        for field, what in _OF_A_CARD.items():
            if card.get(field) is not None:
                yield f"{what} of card {card['index']}", str(card[field])
        if width := _WIDTH.search(card.get("link") or ""):
            yield f"link width of card {card['index']}", width[0]


def _votes_on(notebook: str, name: str, variants: Sequence[tuple[Mapping[str, Any], list[str]]]) -> Iterator[Vote]:
    """The rows of a check first; where all rows agree, the check itself: its outcome and its digest."""
    ballots: dict[str, dict[tuple[str, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    for check, nodes in variants:
        for case, value in _values(check):
            ballots[case][value] += nodes
    split = [case for case, values in ballots.items() if len(values) > 1]
    for case in [each for each in split if each != WHOLE] or split:
        ordered = sorted(ballots[case].items(), key=lambda pair: (-len(pair[1]), pair[0]))
        yield Vote(notebook, name, case, tuple(Ballot(_shown(value), tuple(nodes)) for value, nodes in ordered))


def _values(check: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """By case what a node's vote is: outcome, measured value and digest; only the outcome of what need not repeat.

    A red check or row has no vote, since it is reported by itself.
    """
    for each in (check, *check["rows"]):
        case = each["case"] if each is not check else WHOLE
        if each["outcome"] in ("failed", "broken", "missing"):
            continue
        if each["outcome"] not in _RIGHT or _varies(check["name"], case):
            yield case, (each["outcome"],)
        elif check["measurements"]:
            yield case, (each["outcome"], *_losses(check, case))
        else:
            yield case, (each["outcome"], _text(each["measured"]), check["digest"] or "" if each is check else "")


@cache
def _varies(check: str, case: str) -> bool:
    """Whether this value need not repeat; a check as a whole need not when one of its rows need not."""
    return selection().varies(check)


def _losses(check: Mapping[str, Any], case: str) -> list[str]:
    """Of a check against baselines only losses repeat."""
    return [_text(each["values"]) for each in check["measurements"] if each["kind"] == "loss" and case in (WHOLE, each["case"])]


def _text(measured: Any) -> str:
    """Of an exception only its type: the message may name a temporary folder."""
    return measured.partition(":")[0] if isinstance(measured, str) else repr(measured)


def _shown(value: tuple[str, ...]) -> str:
    outcome, *measured = value
    return " ".join([*filter(None, measured[:1]), *(f"[{each}]" for each in measured[1:] if each)]) or outcome
