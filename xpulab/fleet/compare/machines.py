"""Many machines side by side: the outliers of each type, values without a majority, the spread of rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from xpulab.errors import InputError
from xpulab.fleet import rates, votes
from xpulab.fleet.compare.comparison import FLEET, KNOWN, Cell, Comparison, Table, chapter_seconds
from xpulab.fleet.finding import Finding, repeat
from xpulab.fleet.machine_type import (
    MachineType,
    differing_names,
    format_groups,
    format_type,
    grouped_by_type,
    is_known,
    refuse_mixed,
)
from xpulab.fleet.outliers import NO_MAJORITY, UNREADABLE, find_within
from xpulab.fleet.rates import Measured
from xpulab.fleet.runs import Run, Unreadable
from xpulab.fleet.votes import Vote
from xpulab.messages import N_

_SHOWN_VALUES = 3


def compare_machines(runs: Sequence[Run], unreadable: Sequence[Unreadable], mixed: bool) -> Comparison:
    """The machines of a fleet. mixed: machines of several types are compared within each type.

    Raises InputError when there are several types and that is not asked for, or when no run has ended.
    """
    groups = grouped_by_type([run for run in runs if run.is_finished])
    if not mixed:
        refuse_mixed(groups)
    if not any(run.is_finished for run in runs):
        raise InputError(N_("none of the runs has ended, so there is nothing to compare; wait, or run them again"))
    findings = [_of_unreadable(each) for each in unreadable]
    compared = [(group, votes.disagreements(group)) for group in groups.values()]
    findings += find_within(runs, compared)
    findings += [finding for group, split in compared for finding in _without_majority(group, split)]
    tables = [table for of_type, group in groups.items() for table in _of_group(_title(of_type, list(groups)), group)]
    subject = _subject(runs, groups)
    return Comparison(FLEET, subject, tuple(runs), tuple(findings), (), tuple(_notes(runs, groups)), tuple(tables))


def _subject(runs: Sequence[Run], groups: Mapping[MachineType, Sequence[Run]]) -> str:
    number = len(runs)
    counted = N_("1 run") if number == 1 else N_(f"{number} runs")
    if len(groups) == 1:
        return N_(f"{counted} of one type of machine: {format_type(next(iter(groups)))}")
    return N_(f"{counted} of {len(groups)} types of machines: {'; '.join(format_groups(groups))}")


def _title(of_type: MachineType, types: Sequence[MachineType]) -> str:
    """What distinguishes this type, to stand behind the title of a table; "" when there is only one."""
    differing = differing_names(types)
    return "".join(f", {name} {value}" for name, value in of_type if name in differing)


def _of_unreadable(unreadable: Unreadable) -> Finding:
    again = f"xpulab bundle FOLDER --out {unreadable.source.name}"
    return Finding(unreadable.name, "", "", UNREADABLE, "nothing", "a run", unreadable.reason, again)


def _without_majority(group: Sequence[Run], split: Sequence[Vote]) -> Iterator[Finding]:
    for vote in split:
        if vote.majority is None:
            shown = "; ".join(f"{_named(ballot.nodes)}: {ballot.shown}" for ballot in vote.ballots[:_SHOWN_VALUES])
            number = len(vote.ballots) - _SHOWN_VALUES
            more = f"; {N_(f'and {number} other values')}" if number > 0 else ""
            why = NO_MAJORITY if vote.nodes >= votes.NEEDED else N_(f"{vote.nodes} nodes are too few for a majority")
            again = repeat(group[0], vote.notebook, vote.check) if vote.check else "xpulab doctor"
            first, second = (ballot.shown for ballot in vote.ballots[:2])
            yield Finding("", vote.check, vote.case, NO_MAJORITY, first, second, f"{vote.where}: {why}; {shown}{more}", again)


def _named(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else N_(f"{names[0]} and {len(names) - 1} more")


def _notes(runs: Sequence[Run], groups: Mapping[MachineType, Sequence[Run]]) -> Iterator[str]:
    for group in groups.values():
        if len(group) < votes.NEEDED:
            names = ", ".join(run.name for run in group)
            yield N_(f"{names}: fewer than {votes.NEEDED} runs of one type: no majority, and no median of rates")
    if unknown := [run.name for run in runs if run.is_finished and not is_known(run)]:
        yield N_(f"{_named(unknown)}: no notebook recorded where it ran, so its values were not compared")
    if partial := [run.name for run in runs if run.result["outcome"] == "partial"]:
        yield N_(f"{_named(partial)}: only some checks were run (--check)")


def _of_group(title: str, group: Sequence[Run]) -> Iterator[Table]:
    columns = ("check", "case", "nodes", "median", "deviation", "bound", "worst", "unit", "node")
    if rows := tuple(_of_measured(measured) for measured in rates.measured_by(group)):
        yield Table(N_(f"Rates and memory{title}"), columns, rows)
    seconds = tuple(_of_chapter(name, measured) for name, measured in chapter_seconds(group).items())
    yield Table(N_(f"Seconds of the chapters, not judged{title}"), ("chapter", "median", "least", "most", "node"), seconds)
    if known := tuple(_known_issues(group)):
        yield Table(N_(f"Known issues that not all runs meet{title}"), ("check", "outcome", "runs"), known)


def _of_measured(measured: Measured) -> tuple[Cell, ...]:
    spread = rates.spread_of(measured)
    node, worst = (min if measured.kind == "rate" else max)(measured.values.items(), key=lambda pair: pair[1])
    values = (spread.median, spread.deviation, spread.bound, worst) if spread else (None, None, None, worst)
    shown = (None if value is None else measured.for_a_table(value) for value in values)
    return (measured.check, measured.case, len(measured.values), *shown, measured.table_unit, node)


def _of_chapter(name: str, measured: Sequence[tuple[float, str]]) -> tuple[Cell, ...]:
    ordered = sorted(measured)
    return name, ordered[len(ordered) // 2][0], ordered[0][0], *ordered[-1]


def _known_issues(group: Sequence[Run]) -> Iterator[tuple[Cell, ...]]:
    counts = Counter((check["name"], check["outcome"]) for run in group for _, check in run.checks())
    for (name, outcome), count in counts.items():
        if outcome in KNOWN and count < len(group):
            yield name, outcome, count
