"""The machines of one type that are not like the others: red, slow, with other values, or with another machine's card.

Rates and memory are compared with the median of all, values by a majority vote; see xpulab.fleet.rates and xpulab.fleet.votes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xpulab.fleet import rates, votes
from xpulab.fleet.machine_type import grouped_by_type, is_known, refuse_mixed
from xpulab.fleet.rates import Spread
from xpulab.fleet.runs import Run
from xpulab.records.format import format_measurement, format_value
from xpulab.records.record import RED, Measurement

UNFINISHED, RED_NOTEBOOK, RED_CHECK = "unfinished", "red notebook", "red check"
MISSING, DIFFERS, SLOW, MEMORY, CARD_TWICE = (
    "missing check",
    "differs from the majority",
    "slow",
    "more memory",
    "card id twice",
)
KINDS = (UNFINISHED, RED_NOTEBOOK, RED_CHECK, MISSING, DIFFERS, SLOW, MEMORY, CARD_TWICE)
"""The kinds of outliers, in the order in which they are reported."""

_WORD = {"rate": "slower", "memory": "more memory"}
_KIND = {"rate": SLOW, "memory": MEMORY}
_NO_SERIAL = frozenset({"", "0", "n/a", "[n/a]", "none", "unknown"})


@dataclass(frozen=True)
class Outlier:
    """What is wrong with one node, or unlike on others.

    node: the name of its run. kind: one of KINDS.
    check, case: where, "" for a whole run or notebook, and for a check without rows.
    measured, expected: as text; expected is what the majority measured, or a bound.
    sentence: all of it in one sentence. repeat: the command that measures it again, on that node.
    """

    node: str
    check: str
    case: str
    kind: str
    measured: str
    expected: str
    sentence: str
    repeat: str


def find_outliers(runs: Sequence[Run]) -> tuple[Outlier, ...]:
    """The outliers among runs of one type of machine, by kind and then in the order of the runs.

    Raises InputError when the machines are of several types.
    """
    refuse_mixed(grouped_by_type([run for run in runs if run.is_finished]))
    found = [*of_each_run(runs), *missing_checks(runs), *differing(runs), *far_from_the_median(runs), *repeated_cards(runs)]
    return in_order(found, runs)


def in_order(outliers: Sequence[Outlier], runs: Sequence[Run]) -> tuple[Outlier, ...]:
    """Sorted by kind, then as the runs are."""
    position = {run.name: number for number, run in enumerate(runs)}
    return tuple(sorted(outliers, key=lambda each: (KINDS.index(each.kind), position[each.node])))


def of_each_run(runs: Sequence[Run]) -> Iterator[Outlier]:
    """What a run says of itself: it is not finished, a notebook or a check is red."""
    for run in runs:
        if not run.is_finished:
            yield _of_run(run, UNFINISHED, f"its run has not ended: outcome {run.result['outcome']!r}; it has no verdict")
            continue
        for notebook in run.result["notebooks"]:
            red = [check for check in notebook["checks"] if check["outcome"] in RED]
            for check in red:
                yield _of_red_check(run, notebook["name"], check)
            if notebook["outcome"] in ("failed", "missing") and not red:
                yield _of_run(run, RED_NOTEBOOK, f"{notebook['name']} is {notebook['outcome']}: {notebook['reason']}")


def missing_checks(runs: Sequence[Run]) -> Iterator[Outlier]:
    """Checks that more than half of the runs planned, and a run did not: it has other notebooks, or another xpulab."""
    finished = [run for run in runs if run.is_finished]
    planned = {run.name: {(notebook["name"], check["name"]) for notebook, check in _checks(run)} for run in finished}
    counts = Counter(place for places in planned.values() for place in places)
    usual = [place for place, count in counts.items() if 2 * count > len(finished)]
    for run in finished:
        for notebook, check in usual:
            if (notebook, check) not in planned[run.name]:
                sentence = f"{check} is not in this run, but in {counts[notebook, check]} of {len(finished)}"
                yield Outlier(run.name, check, "", MISSING, "nothing", "a verdict", sentence, repeat(run, notebook, check))


def differing(runs: Sequence[Run]) -> Iterator[Outlier]:
    """Values that are not those of the majority, as far as there is one."""
    compared = {run.name: run for run in runs if run.is_finished and is_known(run)}
    for vote in votes.disagreements(list(compared.values())):
        if (majority := vote.majority) is None:
            continue
        for ballot in vote.ballots[1:]:
            for node in ballot.nodes:
                where = f"{vote.check}{f', {vote.case}' if vote.case else ''}"
                sentence = f"{where}: {ballot.shown}, and {len(majority.nodes)} of {vote.nodes} nodes have {majority.shown}"
                again = repeat(compared[node], vote.notebook, vote.check)
                yield Outlier(node, vote.check, vote.case, DIFFERS, ballot.shown, majority.shown, sentence, again)


@dataclass(frozen=True)
class Measured:
    """A rate or an amount of memory that nodes measured under the same conditions.

    notebook, check, case, kind, unit: as in the measurement. values: by node.
    """

    notebook: str
    check: str
    case: str
    kind: str
    unit: str
    values: Mapping[str, float]

    def format(self, value: float) -> str:
        """A value with its unit."""
        return format_measurement(Measurement("", self.kind, self.unit, (value,))).strip()


def measured_by(runs: Sequence[Run]) -> list[Measured]:
    """The rates and the memory of all finished runs."""
    found: dict[tuple[str, str, str, str, str, str], dict[str, float]] = defaultdict(dict)
    for run in runs:
        for notebook, check in _checks(run) if run.is_finished and is_known(run) else ():
            for each in check["measurements"] or ():
                if each["kind"] in _KIND and check["outcome"] not in RED:
                    conditions = repr(sorted(each["conditions"].items()))
                    place = (notebook["name"], check["name"], each["case"], each["kind"], each["unit"], conditions)
                    found[place][run.name] = each["values"][-1]
    return [Measured(*place[:5], values) for place, values in found.items()]


def far_from_the_median(runs: Sequence[Run]) -> Iterator[Outlier]:
    """Rates far below the median of at least three nodes, and memory far above it."""
    by_name = {run.name: run for run in runs}
    for measured in measured_by(runs):
        if len(measured.values) < rates.NEEDED:
            continue
        device = next(by_name[node].result["device"] for node in measured.values)
        spread = rates.spread_of(measured.values, measured.kind, device)
        for node in rates.outside(measured.values, spread, measured.kind):
            yield _of_measured(by_name[node], measured, spread)


def repeated_cards(runs: Sequence[Run]) -> Iterator[Outlier]:
    """Serial numbers that two nodes have, or two cards of a node. Several GPUs of one NVIDIA board share theirs."""
    owners: dict[str, list[tuple[Run, int]]] = defaultdict(list)
    for run in runs:
        for card in run.result["card_facts"]:
            if str(card["serial"] or "").lower() not in _NO_SERIAL:
                owners[str(card["serial"])].append((run, card["index"]))
    for serial, places in owners.items():
        for run, index in places:
            others = [(other, number) for other, number in places if other is not run or number != index]
            if run.result["device"] == "gpu":
                others = [(other, number) for other, number in others if other is not run]
            if others:
                named = ", ".join(f"card {number} of {other.name}" for other, number in others[:3])
                sentence = f"card {index} has serial number {serial}, and so has {named}"
                again = f"xpulab doctor --device {run.result['device']}"
                yield Outlier(run.name, "", f"card {index}", CARD_TWICE, serial, "a serial number of its own", sentence, again)


def repeat(run: Run, notebook: str, check: str) -> str:
    """The command that repeats a check; without a check, the notebook."""
    result = run.result
    of_check = f" --check {check}" if check else ""
    seed = f" --seed {result['seed']}" if result.get("seed") else ""
    return (
        f"xpulab run {notebook}{of_check} --device {result['device']} --cards {result['cards']} --level {result['level']}{seed}"
    )


def format_card(run: Run, case: str) -> str:
    """The serial number of the card that a measurement is of, in parentheses, where the run says which one it is."""
    named = [card for card in run.result["card_facts"] if f"card {card['index']}" in case.split(",")[0]]
    chosen = named or run.result["card_facts"][:1]
    return "".join(f" (card {card['index']}, {card['serial']})" for card in chosen if card["serial"])


def _checks(run: Run) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Each check with its notebook."""
    for notebook in run.result["notebooks"]:
        for check in notebook["checks"]:
            yield notebook, check


def _of_run(run: Run, kind: str, sentence: str) -> Outlier:
    result = run.result
    again = f"xpulab run --device {result['device']} --cards {result['cards']} --level {result['level']}"
    return Outlier(run.name, "", "", kind, str(result["outcome"]), "passed", sentence, again)


def _of_red_check(run: Run, notebook: str, check: Mapping[str, Any]) -> Outlier:
    """Of a table, what its first red row measured."""
    row = next((row for row in check["rows"] if row["outcome"] in RED), None)
    case, measured, expected = row["case"] if row else "", *(str((row or check)[each]) for each in ("measured", "expected"))
    if isinstance((row or check)["measured"], float):
        measured = format_value((row or check)["measured"])
    if (row or check)["measured"] is None:
        sentence = f"{check['name']}{f', {case}' if case else ''} is {check['outcome']}: {check['reason']}"
    else:
        sentence = f"{check['name']}{f', {case}' if case else ''} measured {measured}, expected {expected}"
    kind = MISSING if check["outcome"] == "missing" else RED_CHECK
    return Outlier(run.name, check["name"], case, kind, measured, expected, sentence, repeat(run, notebook, check["name"]))


def _of_measured(run: Run, measured: Measured, spread: Spread) -> Outlier:
    value = measured.values[run.name]
    shown, median, bound = map(measured.format, (value, spread.median, spread.bound))
    sentence = (
        f"{measured.check}, {measured.case}: {shown}{format_card(run, measured.case)}, the median of {len(measured.values)} "
        f"nodes is {median}: {_WORD[measured.kind]} than {bound}"
    )
    expected = f"{'at least' if measured.kind == 'rate' else 'at most'} {bound}"
    again = repeat(run, measured.notebook, measured.check)
    return Outlier(run.name, measured.check, measured.case, _KIND[measured.kind], shown, expected, sentence, again)
