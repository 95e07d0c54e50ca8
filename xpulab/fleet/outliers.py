"""The machines of one type that are not like the others: red, slow, with other values, or with another machine's card.

Rates and memory are compared with the median of all, values by a majority vote; see xpulab.fleet.rates and xpulab.fleet.votes.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from xpulab.fleet import rates
from xpulab.fleet.finding import Finding, first_red, format_red, repeat, repeat_run
from xpulab.fleet.machine_type import grouped_by_type, refuse_mixed
from xpulab.fleet.rates import Measured, Spread
from xpulab.fleet.runs import Run
from xpulab.fleet.votes import Vote, disagreements
from xpulab.messages import N_
from xpulab.records.record import RED

UNREADABLE, UNFINISHED, RED_NOTEBOOK, RED_CHECK = N_("unreadable"), N_("unfinished"), N_("red notebook"), N_("red check")
MISSING, DIFFERS, CARD_TWICE = N_("missing check"), N_("differs from the majority"), N_("card id twice")
SLOW, MEMORY = N_("slow"), N_("more memory")
NO_MAJORITY = N_("no majority")
KINDS = (UNREADABLE, UNFINISHED, RED_NOTEBOOK, RED_CHECK, MISSING, DIFFERS, SLOW, MEMORY, CARD_TWICE, NO_MAJORITY)
"""The kinds, in the order in which they are reported. The first and the last are none of find_outliers, but of a comparison."""

MACHINE_MEMORY = N_("memory of the machine")
LEAST_MEMORY = 0.97
"""A share of the median: firmware reserves other amounts, and one memory module of 32 is 3 %."""

_NO_SERIAL = frozenset({"", "0", "n/a", "[n/a]", "none", "unknown"})
"""What tools print for a card without a serial number."""

_SHOWN_CARDS = 3
_NAMED_CARD = re.compile(r"\bcard (\d+)\b")
_KIND = {"rate": SLOW, "memory": MEMORY}


def find_outliers(runs: Sequence[Run]) -> tuple[Finding, ...]:
    """The outliers among runs of one type of machine, by kind and then in the order of the runs.

    Raises InputError when the machines are of several types.
    """
    groups = grouped_by_type([run for run in runs if run.is_finished])
    refuse_mixed(groups)
    return find_within(runs, [(group, disagreements(group)) for group in groups.values()])


def find_within(runs: Sequence[Run], groups: Iterable[tuple[Sequence[Run], Sequence[Vote]]]) -> tuple[Finding, ...]:
    """The outliers among runs, of which those of a group are compared with each other. Beside a group are its disagreements."""
    found = [*of_each_run(runs), *repeated_cards(runs)]
    for group, votes in groups:
        found += [*missing_checks(group), *differing(group, votes), *less_memory(group), *far_from_the_median(group)]
    position = {run.name: number for number, run in enumerate(runs)}
    return tuple(sorted(found, key=lambda each: (KINDS.index(each.kind), position[each.node])))


def of_each_run(runs: Sequence[Run]) -> Iterator[Finding]:
    """What a run says of itself: it is not finished, a notebook or a check is red."""
    for run in runs:
        if not run.is_finished:
            ended = N_(f"its run has not ended: outcome {run.result['outcome']!r}")
            yield _of_run(run, UNFINISHED, f"{ended}; {N_('it has no verdict')}")
            continue
        for notebook in run.result["notebooks"]:
            red = [check for check in notebook["checks"] if check["outcome"] in RED]
            for check in red:
                yield _of_red_check(run, notebook["name"], check)
            if notebook["outcome"] in ("failed", "missing") and not red:
                sentence = format_red(notebook["name"], notebook["outcome"], notebook["reason"])
                yield _of_run(run, RED_NOTEBOOK, sentence)


def missing_checks(runs: Sequence[Run]) -> Iterator[Finding]:
    """Chapters and checks that more than half of the runs have, and one has not: it ran others, or is another xpulab's."""
    chapters = {run.name: {(notebook["name"], "") for notebook in run.result["notebooks"]} for run in runs}
    planned = {run.name: {(notebook["name"], check["name"]) for notebook, check in run.checks()} for run in runs}
    counts = Counter(place for each in (chapters, planned) for places in each.values() for place in places)
    usual = sorted(place for place, count in counts.items() if 2 * count > len(runs))
    for run in runs:
        for notebook, check in usual:
            has_chapter = (notebook, "") in chapters[run.name]
            if (check == "" and not has_chapter) or (check and has_chapter and (notebook, check) not in planned[run.name]):
                sentence = N_(f"{check or notebook} is not in this run, but in {counts[notebook, check]} of {len(runs)}")
                yield Finding(run.name, check, "", MISSING, "nothing", "a verdict", sentence, repeat(run, notebook, check))


def differing(runs: Sequence[Run], votes: Sequence[Vote]) -> Iterator[Finding]:
    """Values, and facts of cards, that are not those of the majority, as far as there is one."""
    by_name = {run.name: run for run in runs}
    for vote in votes:
        if (majority := vote.majority) is None:
            continue
        for ballot in vote.ballots[1:]:
            for node in ballot.nodes:
                number, count = len(majority.nodes), vote.nodes
                others = N_(f"{number} of {count} nodes have {majority.shown}")
                sentence = f"{vote.where}: {ballot.shown}; {others}"
                again = repeat(by_name[node], vote.notebook, vote.check) if vote.check else "xpulab doctor"
                yield Finding(node, vote.check, vote.case, DIFFERS, ballot.shown, majority.shown, sentence, again)


def far_from_the_median(runs: Sequence[Run]) -> Iterator[Finding]:
    """Rates far below the median of at least three nodes, and memory far above it."""
    by_name = {run.name: run for run in runs}
    for measured in rates.measured_by(runs):
        if (spread := rates.spread_of(measured)) is not None:
            for node in rates.outside(measured, spread):
                yield _of_measured(by_name[node], measured, spread)


def less_memory(runs: Sequence[Run]) -> Iterator[Finding]:
    """Machines that show less memory than the median of at least three."""
    sizes = {run.name: run.result["machine"]["memory_gib"] for run in runs if run.result["machine"].get("memory_gib")}
    if len(sizes) < rates.NEEDED:
        return
    median = statistics.median(sizes.values())
    for node, size in sizes.items():
        if size < LEAST_MEMORY * median:
            compared = N_(f"{size:g} GiB, the median of {len(sizes)} nodes is {median:g} GiB")
            sentence = f"{MACHINE_MEMORY}: {compared}"
            shown = (f"{size:g} GiB", f"{median:g} GiB")
            yield Finding(node, "", MACHINE_MEMORY, DIFFERS, *shown, sentence, "xpulab doctor")


def repeated_cards(runs: Sequence[Run]) -> Iterator[Finding]:
    """Cards whose serial number another card has, on the same node or another one."""
    for run, index, serial, others in _repeated_serials(runs):
        sentence = N_(f"card {index} has serial number {serial}, and so has {others}")
        again = f"xpulab doctor --device {run.result['device']}"
        yield Finding(run.name, "", f"card {index}", CARD_TWICE, serial, "a serial number of its own", sentence, again)


def _of_run(run: Run, kind: str, sentence: str) -> Finding:
    return Finding(run.name, "", "", kind, str(run.result["outcome"]), "passed", sentence, repeat_run(run))


def _of_red_check(run: Run, notebook: str, check: Mapping[str, Any]) -> Finding:
    case, measured, expected, sentence = first_red(check)
    kind = MISSING if check["outcome"] == "missing" else RED_CHECK
    return Finding(run.name, check["name"], case, kind, measured, expected, sentence, repeat(run, notebook, check["name"]))


def _of_measured(run: Run, measured: Measured, spread: Spread) -> Finding:
    value = measured.values[run.name]
    shown, median, bound = map(measured.format, (value, spread.median, spread.bound))
    here = _with_card(shown, run, measured.case)
    off = N_(f"{here}, slower than {bound}") if measured.kind == "rate" else N_(f"{here}, more memory than {bound}")
    usual = N_(f"the median of {len(measured.values)} nodes is {median}")
    sentence = f"{measured.check}, {measured.case}: {off}; {usual}"
    expected = f"{'at least' if measured.kind == 'rate' else 'at most'} {bound}"
    again = repeat(run, measured.notebook, measured.check)
    return Finding(run.name, measured.check, measured.case, _KIND[measured.kind], shown, expected, sentence, again)


def _repeated_serials(runs: Sequence[Run]) -> Iterator[tuple[Run, int, str, str]]:
    """Run, index and serial number of each card whose number another card has too, and those others as text.

    Several GPUs of one NVIDIA board share its number, so on one node they are not counted. A PCI address is unique on one
    machine only, so it is no identity.
    """
    owners: dict[str, list[tuple[Run, int]]] = defaultdict(list)
    for run in runs:
        for card in run.result["card_facts"]:
            if str(card["serial"] or "").lower() not in _NO_SERIAL:
                owners[str(card["serial"])].append((run, card["index"]))
    for serial, places in owners.items():
        for run, index in places if len(places) > 1 else ():
            others = (
                N_(f"card {number} of {other.name}") for other, number in places if not _is_same(run, index, other, number)
            )
            if named := list(islice(others, _SHOWN_CARDS + 1)):
                more = " and more" if len(named) > _SHOWN_CARDS else ""
                yield run, index, serial, ", ".join(named[:_SHOWN_CARDS]) + more


def _is_same(run: Run, index: int, other: Run, number: int) -> bool:
    """Whether two cards may have one serial number: a card and itself, or GPUs of one machine."""
    return other is run and (number == index or run.result["device"] == "gpu")


def _with_card(shown: str, run: Run, case: str) -> str:
    """A value with number and serial number of the card that a case names, or of the only one, when they are known."""
    cards, named = run.result["card_facts"], _NAMED_CARD.search(case)
    chosen = [card for card in cards if named and card["index"] == int(named[1])] or (cards if len(cards) == 1 else [])
    for card in chosen:
        if card["serial"]:
            shown = N_(f"{shown} (card {card['index']}, serial number {card['serial']})")
    return shown
