"""One machine before and after a change: what is wrong or right now, what is slower than the runs of a side differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.compare import upgrade_tables
from xpulab.fleet.compare.changed_values import (
    MORE_MEMORY,
    MOST_FACTOR,
    OTHER_LOSS,
    SLOWER,
    changed_losses,
    changed_rates,
    has_spread,
)
from xpulab.fleet.compare.comparison import UPGRADE, Comparison
from xpulab.fleet.compare.sides import NOT_PLANNED, Place, Side, all_places, require_comparable
from xpulab.fleet.compare.upgrade_tables import changed_versions, software
from xpulab.fleet.finding import Finding, first_red
from xpulab.fleet.finding import place as format_place
from xpulab.fleet.machine_type import differing_names, hardware, machine_type
from xpulab.fleet.runs import Run
from xpulab.records.record import RED

NOW_WRONG, VANISHED, NOT_COMPARED = "now wrong", "vanished check", "no longer compared"
FINDINGS = (NOW_WRONG, SLOWER, MORE_MEMORY, OTHER_LOSS, VANISHED, NOT_COMPARED)
NOW_RIGHT, NOW_COMPARED = "now right", "now compared"


def sides_of(runs: Sequence[Run]) -> tuple[Side, Side]:
    """The runs before and after, by what is installed; two runs with the same versions are one side each.

    Raises InputError when the runs are not of one machine, or have more than two sets of versions.
    """
    require_comparable(runs)
    types = list({hardware(machine_type(run), run.result["versions"]) for run in runs})
    if len(types) > 1:
        raise InputError(
            f"the runs are not of one machine: {', '.join(differing_names(types))} differ; compare devices with --as parity"
        )
    groups: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted(software(run).items())), []).append(run)
    if len(groups) == 1 and len(runs) == 2:
        return Side(runs[0].name, (runs[0],)), Side(runs[1].name, (runs[1],))
    if len(groups) != 2:
        raise InputError(
            f"the runs have {len(groups)} sets of versions, and an upgrade compares two; name runs before and after it, each "
            "side as often as you ran it"
        )
    before, after = groups.values()
    return Side("before", tuple(before)), Side("after", tuple(after))


def compare_upgrade(runs: Sequence[Run]) -> Comparison:
    """The side of the run that is named first, and the other one. Raises InputError as sides_of."""
    before, after = sides_of(runs)
    places = all_places((before, after))
    gone = [name for name in before.chapters if name not in after.chapters]
    changes = [_vanished_chapter(name, before) for name in gone]
    changes += [change for where in places if where[0] not in gone for change in _changes(where, before, after)]
    changes += [*_red_chapters(before, after), *changed_rates(before, after), *changed_losses(before, after)]
    findings = sorted((each for each in changes if each.kind in FINDINGS), key=lambda each: FINDINGS.index(each.kind))
    improvements = tuple(each for each in changes if each.kind not in FINDINGS)
    tables = upgrade_tables.tables(before, after)
    notes = tuple(_notes(before, after, places))
    versions = "".join(f"; {name} {old}, then {new}" for name, old, new in changed_versions(before, after))
    subject = f"{_described(before)}, then {_described(after)}{versions}"
    return Comparison(UPGRADE, subject, tuple(runs), tuple(findings), improvements, notes, tuple(tables))


def _described(side: Side) -> str:
    return f"{side.name} ({', '.join(run.name for run in side.runs)})" if side.name in ("before", "after") else side.name


def _notes(before: Side, after: Side, places: Sequence[Place]) -> Iterator[str]:
    if not changed_versions(before, after):
        yield "no version differs between these runs"
    if not has_spread(before, after):
        factor = MOST_FACTOR[before.result["device"]]
        yield f"one run of a side shows no spread, so a rate is slower beyond a factor of {factor:g}; name two or more of each"
    still = [where for where in places if before.is_red(where) and after.is_red(where)]
    if still:
        yield f"wrong before and after: {', '.join(check for _, check in still)}"
    new = [where for where in places if before.outcome(where) == NOT_PLANNED]
    if new:
        yield f"{len(new)} new checks: {', '.join(check for _, check in new)}"


def _changes(where: Place, before: Side, after: Side) -> Iterator[Finding]:
    """What changed in the outcome of a check and its rows. A known issue is in a table of its own."""
    earlier, later = before.outcome(where), after.outcome(where)
    check = where[1]
    again = (before if later == NOT_PLANNED else after).repeat(where)
    if later == NOT_PLANNED:
        yield _change(VANISHED, where, "", earlier, later, f"{check} was {earlier}, and is not planned any more", again)
    elif after.is_red(where) and (new_rows := _new_red(where, before, after)) is not None:
        case, measured, _, what = first_red(new_rows)
        sentence = f"{format_place(check, case)} {what}{after.how_often(where)}; it was {earlier}"
        yield _change(NOW_WRONG, where, case, earlier, measured, sentence, again)
    elif before.is_red(where) and not after.is_red(where) and later != "skipped":
        yield _change(
            NOW_RIGHT, where, "", earlier, later, f"{check} was {earlier}{before.how_often(where)}, is {later}", again
        )
    elif before.is_compared(where) and not after.is_compared(where):
        reason = after.worst_check(where)["reason"]
        yield _change(NOT_COMPARED, where, "", earlier, later, f"{check} was {earlier}, is {later}: {reason}", again)
    elif earlier == "skipped" and after.is_compared(where):
        yield _change(NOW_COMPARED, where, "", earlier, later, f"{check} was skipped, is {later}", again)
    elif gone := _rows_no_longer_compared(where, before, after):
        sentence = f"{check}: {len(gone)} rows are no longer compared: {', '.join(gone[:5])}{', ...' if len(gone) > 5 else ''}"
        yield _change(NOT_COMPARED, where, gone[0], earlier, later, sentence, again)


def _red_chapters(before: Side, after: Side) -> Iterator[Finding]:
    """Chapters that are red now although none of their checks is, for instance because their text differs."""
    for name, red in after.red_chapters().items():
        if name not in before.red_chapters():
            sentence = f"{name} is {red['outcome']}: {red['reason']}"
            yield Finding("", "", name, NOW_WRONG, red["outcome"], "passed", sentence, after.repeat((name, "")))


def _vanished_chapter(name: str, before: Side) -> Finding:
    sentence = f"{name} was run before, and was not run after"
    return Finding("", "", name, VANISHED, NOT_PLANNED, "run", sentence, before.repeat((name, "")))


def _change(kind: str, where: Place, case: str, earlier: str, later: str, sentence: str, again: str) -> Finding:
    return Finding("", where[1], case, kind, later, earlier, sentence, again)


def _new_red(where: Place, before: Side, after: Side) -> Mapping[str, Any] | None:
    """The check that is red now with those of its red rows that were not red before; None when there is nothing new."""
    check = after.worst_check(where)
    if not before.is_red(where):
        return check
    red_before = {row["case"] for each in before.checks[where] for row in each["rows"] if row["outcome"] in RED}
    rows = [row for row in check["rows"] if row["outcome"] in RED and row["case"] not in red_before]
    return {**check, "rows": rows} if rows else None


def _rows_no_longer_compared(where: Place, before: Side, after: Side) -> list[str]:
    """The rows that every run compared before, and no run does now."""
    if not (before.is_compared(where) and after.is_compared(where)):
        return []
    earlier, later = (_compared_rows(side.checks[where]) for side in (before, after))
    return [case for case in earlier if case not in later]


def _compared_rows(checks: Sequence[Mapping[str, Any]]) -> dict[str, None]:
    return dict.fromkeys(row["case"] for check in checks for row in check["rows"] if row["outcome"] != "skipped")
