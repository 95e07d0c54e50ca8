"""The machines of one type that are not like the others: red, slow, or with other values.

Rates and memory are compared with the median, values with the majority. With one seed a notebook computes the same bits on
every machine of a type, except for what data/soak.yaml lists (times, rates, memory) and what a known issue makes wrong.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xpulab.devices import wheel_device
from xpulab.fleet.anomaly import Anomaly, first_red, format_red, place, repeat
from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records.format import format_measurement
from xpulab.records.record import RED, RIGHT, Measurement
from xpulab.soak.selection import varies

UNREADABLE, UNFINISHED, RED_NOTEBOOK, RED_CHECK = N_("unreadable"), N_("unfinished"), N_("red notebook"), N_("red check")
MISSING, DIFFERS = N_("missing check"), N_("differs from the majority")
SLOW, MEMORY = N_("slow"), N_("more memory")
NO_MAJORITY = N_("no majority")
KINDS = (UNREADABLE, UNFINISHED, RED_NOTEBOOK, RED_CHECK, MISSING, DIFFERS, SLOW, MEMORY, NO_MAJORITY)
"""The kinds, in the order in which they are reported. The first and the last are none of find_outliers, but of a comparison."""

NEEDED = 3
"""Fewer machines have no outlier and no majority: of two that differ nothing says which is wrong."""

DEVIATIONS = 5.0
"""An outlier is so many robust standard deviations from the median: of 1,000 healthy nodes with 20 rates none is flagged."""

LEAST_SHARE = {"card": {"rate": 0.05, "memory": 0.02}, "shared cores": {"rate": 5 / 6, "memory": 0.1}}
"""The least difference that counts, as a share of the median: where all nodes measure the same, their deviation is 0. A CPU,
which computes for simulated cards too, shares its cores with others, as in baselines. Not measured on a card."""

_TO_STANDARD_DEVIATION = 1.4826
"""The median absolute deviation of a normal distribution times this is its standard deviation."""

_OF_A_CARD = {"firmware": "firmware", "state": "state", "memory_total_mib": "memory in MiB"}
_LINK_WIDTH = re.compile(r"x\d+")
"""Of a link. Its rate is not compared: a card that is idle may lower it."""
_WHOLE = ""
"""The case of a check itself, beside its rows."""


def find_outliers(runs: Sequence[Run], groups: Iterable[Sequence[Run]]) -> tuple[Anomaly, ...]:
    """The outliers among runs, by kind and then in the order of the runs. groups: the runs of each type of machine."""
    found = [*_of_each_run(runs)]
    for group in groups:
        found += [*_differing(group), *_far_from_the_median(group)]
    position = {run.name: number for number, run in enumerate(runs)}
    return tuple(sorted(found, key=lambda each: (KINDS.index(each.kind), position[each.node])))


# ------------------------------------------------------------------------------------------------- what a run says of itself


def _of_each_run(runs: Sequence[Run]) -> Iterator[Anomaly]:
    """A run that has not ended, and red notebooks and checks."""
    for run in runs:
        if not run.is_finished:
            ended = N_("its run has not ended: outcome {result}", result=repr(run.result["outcome"]))
            yield _of_run(run, UNFINISHED, f"{ended}; {N_('it has no verdict')}")
            continue
        for notebook in run.result["notebooks"]:
            red = [check for check in notebook["checks"] if check["outcome"] in RED]
            for check in red:
                case, measured, expected, sentence = first_red(check)
                kind = MISSING if check["outcome"] == "missing" else RED_CHECK
                again = repeat(run, notebook["name"], check["name"])
                yield Anomaly(run.name, check["name"], case, kind, measured, expected, sentence, again)
            if notebook["outcome"] in ("failed", "missing") and not red:
                yield _of_run(run, RED_NOTEBOOK, format_red(notebook["name"], notebook["outcome"], notebook["reason"]))


def _of_run(run: Run, kind: str, sentence: str) -> Anomaly:
    return Anomaly(run.name, "", "", kind, str(run.result["outcome"]), "passed", sentence, repeat(run))


# -------------------------------------------------------------------------------------------------- values, by the majority


@dataclass(frozen=True)
class Vote:
    """A value on which the nodes of one type do not agree.

    notebook, check, case: where; case is "" for the check itself, notebook and check are "" for a fact of a card.
    ballots: the nodes by value as text, most nodes first.
    """

    notebook: str
    check: str
    case: str
    ballots: Mapping[str, Sequence[str]]

    @property
    def where(self) -> str:
        """The place as text."""
        return place(self.check, self.case) if self.check else self.case

    @property
    def nodes(self) -> int:
        """How many nodes voted."""
        return sum(map(len, self.ballots.values()))

    @property
    def majority(self) -> str | None:
        """The value of more than half of at least NEEDED nodes."""
        value, nodes = next(iter(self.ballots.items()))
        return value if self.nodes >= NEEDED and 2 * len(nodes) > self.nodes else None


def disagreements(runs: Sequence[Run]) -> tuple[Vote, ...]:
    """The votes on all values, and on facts of cards, that runs on machines of one type do not share."""
    return (*_on_values(runs), *_votes("", "", ((case, value, [run.name]) for run in runs for case, value in card_facts(run))))


def card_facts(run: Run) -> Iterator[tuple[str, str]]:
    """What does not belong to the type of a machine, but is the same on sound machines: of each card a fact and its value."""
    for card in run.result["card_facts"]:
        for field, what in _OF_A_CARD.items():
            if card.get(field) is not None:
                yield f"{what} of card {card['index']}", str(card[field])
        if width := _LINK_WIDTH.search(card.get("link") or ""):
            yield f"link width of card {card['index']}", width[0]


def _on_values(runs: Sequence[Run]) -> Iterator[Vote]:
    variants: dict[tuple[str, str], dict[str, tuple[Mapping[str, Any], list[str]]]] = defaultdict(dict)
    for run in runs:
        for notebook, check in run.checks():
            same = repr([check[field] for field in ("outcome", "measured", "digest", "measurements", "rows")])
            variants[notebook["name"], check["name"]].setdefault(same, (check, []))[1].append(run.name)
    for (notebook_name, name), found in variants.items():
        if len(found) > 1:
            values = [(case, value, nodes) for check, nodes in found.values() for case, value in _values(check)]
            votes = list(_votes(notebook_name, name, values))
            yield from [vote for vote in votes if vote.case != _WHOLE] or votes


def _votes(notebook: str, check: str, values: Iterable[tuple[str, str, Sequence[str]]]) -> Iterator[Vote]:
    """The votes on which the nodes do not agree. values: case, value and nodes that have it."""
    ballots: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case, value, nodes in values:
        ballots[case][value] += nodes
    for case, of_case in ballots.items():
        if len(of_case) > 1:
            yield Vote(notebook, check, case, dict(sorted(of_case.items(), key=lambda pair: (-len(pair[1]), pair[0]))))


def _values(check: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """By case the value that a node votes for. What is red has no vote, since it is reported by itself."""
    for part in (check, *check["rows"]):
        case = _WHOLE if part is check else part["case"]
        if part["outcome"] in RED:
            continue
        if part["outcome"] not in RIGHT or varies(check["name"]):
            yield case, part["outcome"]
        elif check["measurements"]:  # only losses repeat
            losses = (each for each in check["measurements"] if each["kind"] == "loss" and case in (_WHOLE, each["case"]))
            yield case, "; ".join(repr(each["values"]) for each in losses) or part["outcome"]
        else:
            measured = part["measured"]  # of an exception only its type: the message may name a temporary folder
            shown = measured.partition(":")[0] if isinstance(measured, str) else repr(measured)
            yield case, f"{shown} [{check['digest']}]" if part is check and check["digest"] else shown


def _differing(runs: Sequence[Run]) -> Iterator[Anomaly]:
    """Values, and facts of cards, that are not those of the majority, as far as there is one."""
    by_name = {run.name: run for run in runs}
    for vote in disagreements(runs):
        if (majority := vote.majority) is None:
            continue
        number, count = len(vote.ballots[majority]), vote.nodes
        others = N_("{number} of {count} nodes have {majority}", number=number, count=count, majority=majority)
        for value, nodes in vote.ballots.items():
            for node in nodes if value != majority else ():
                again = repeat(by_name[node], vote.notebook, vote.check) if vote.check else "xpulab doctor"
                sentence = f"{vote.where}: {value}; {others}"
                yield Anomaly(node, vote.check, vote.case, DIFFERS, value, majority, sentence, again)


# ---------------------------------------------------------------------------------------------- rates and memory, by the median


@dataclass(frozen=True)
class Measured:
    """A rate or an amount of memory that nodes measured under the same conditions.

    device: of all nodes. notebook, check, case, kind, unit: as in the measurement. values: by node, in this unit.
    """

    device: str
    notebook: str
    check: str
    case: str
    kind: str
    unit: str
    values: Mapping[str, float]

    @property
    def bound(self) -> float | None:
        """A rate below it, or an amount of memory above it, is an outlier; None when too few nodes measured it."""
        if len(self.values) < NEEDED:
            return None
        median = self.median
        deviation = _TO_STANDARD_DEVIATION * statistics.median(abs(value - median) for value in self.values.values())
        least = LEAST_SHARE["shared cores" if wheel_device(self.device) == "cpu" else "card"][self.kind]
        distance = max(DEVIATIONS * deviation, least * median)
        return median - distance if self.kind == "rate" else median + distance

    @property
    def median(self) -> float:
        """Of all nodes, in the unit of the values."""
        return statistics.median(self.values.values())

    def format(self, value: float) -> str:
        """A value with its unit."""
        return format_measurement(Measurement("", self.kind, self.unit, (value,))).strip()


def measured_by(runs: Sequence[Run]) -> list[Measured]:
    """The rates and the memory of runs on one device; those of red checks are left out."""
    device = runs[0].result["device"]
    found: dict[tuple[str, str, str, str, str, str], dict[str, float]] = defaultdict(dict)
    for run in runs:
        for notebook, check in run.checks():
            for each in check["measurements"] or ():
                if each["kind"] in ("rate", "memory") and check["outcome"] not in RED:
                    conditions = repr(sorted(each["conditions"].items()))
                    where = (notebook["name"], check["name"], each["case"], each["kind"], each["unit"], conditions)
                    found[where][run.name] = each["values"][-1]
    return [Measured(device, *where[:5], values) for where, values in found.items()]


def _far_from_the_median(runs: Sequence[Run]) -> Iterator[Anomaly]:
    """Rates far below the median, and memory far above it."""
    by_name = {run.name: run for run in runs}
    for measured in measured_by(runs):
        if (limit := measured.bound) is None:
            continue
        is_rate = measured.kind == "rate"
        bound, median = measured.format(limit), measured.format(measured.median)
        for node, value in measured.values.items():
            if value < limit if is_rate else value > limit:
                run, here = by_name[node], measured.format(value)
                off = (
                    N_("{here}, slower than {bound}", here=here, bound=bound)
                    if is_rate
                    else N_("{here}, more memory than {bound}", here=here, bound=bound)
                )
                usual = N_("the median of {values} nodes is {median}", values=len(measured.values), median=median)
                sentence = f"{measured.check}, {measured.case}: {off}; {usual}"
                expected, kind = (f"at least {bound}", SLOW) if is_rate else (f"at most {bound}", MEMORY)
                again = repeat(run, measured.notebook, measured.check)
                yield Anomaly(node, measured.check, measured.case, kind, here, expected, sentence, again)
