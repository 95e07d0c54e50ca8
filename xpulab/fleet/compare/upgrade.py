"""One machine before and after a change: what is wrong or right now; rates, memory and losses that changed by more than the
runs of a side differ; versions, chapters and known issues that differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet import rates
from xpulab.fleet.compare.capabilities import capability_table
from xpulab.fleet.compare.comparison import (
    KNOWN,
    NOT_PLANNED,
    UPGRADE,
    Cell,
    Comparison,
    Place,
    Side,
    Table,
    all_places,
    chapter_seconds,
    require_comparable,
)
from xpulab.fleet.finding import Finding, first_red, format_red
from xpulab.fleet.machine_type import differing_names, hardware, machine_type
from xpulab.fleet.rates import Measured
from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records import baselines
from xpulab.records.record import RED

SLOWER, MORE_MEMORY, OTHER_LOSS = N_("slower than its spread"), N_("more memory"), N_("other losses")
FASTER, LESS_MEMORY = N_("faster than its spread"), N_("less memory")

SPREADS = 4
"""A rate is slower when the medians of both sides differ by more than so many spreads (largest minus smallest of a side)."""

LEAST_CHANGE = {"rate": 0.05, "memory": 0.02}
"""By kind the least change that counts, as a share of the median before. Not measured on a card."""

MOST_FACTOR = {"cpu": 6.0, "sim": 6.0, "gpu": 1.25, "xpu": 1.25}
"""A rate is slower when it differs by more than this factor, as in baselines, whatever the spread. With one run on a side
there is no spread, and nothing less counts."""

_KINDS = {
    ("rate", False): SLOWER,
    ("rate", True): FASTER,
    ("memory", True): MORE_MEMORY,
    ("memory", False): LESS_MEMORY,
}
"""By the kind of a measurement and whether it grew."""

NOW_WRONG, VANISHED, NOT_COMPARED = N_("now wrong"), N_("vanished check"), N_("no longer compared")
FINDINGS = (NOW_WRONG, SLOWER, MORE_MEMORY, OTHER_LOSS, VANISHED, NOT_COMPARED)
NOW_RIGHT, NOW_COMPARED = N_("now right"), N_("now compared")


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
    tables = _tables(before, after)
    notes = tuple(_notes(before, after, places))
    versions = "".join(f"; {name} {old}, then {new}" for name, old, new in changed_versions(before, after))
    subject = f"{_described(before)}, then {_described(after)}{versions}"
    return Comparison(UPGRADE, subject, tuple(runs), tuple(findings), improvements, notes, tuple(tables))


def _described(side: Side) -> str:
    return f"{side.name} ({', '.join(run.name for run in side.runs)})" if side.name in ("before", "after") else side.name


def _notes(before: Side, after: Side, places: Sequence[Place]) -> Iterator[str]:
    if not changed_versions(before, after):
        yield N_("no version differs between these runs")
    if not has_spread(before, after):
        factor = MOST_FACTOR[before.result["device"]]
        yield N_(
            f"one run of a side shows no spread, so a rate is slower beyond a factor of {factor:g}; name two or more of each"
        )
    still = [where for where in places if before.is_red(where) and after.is_red(where)]
    if still:
        yield f"{N_('wrong before and after: ')}{', '.join(check for _, check in still)}"
    new = [where for where in places if before.outcome(where) == NOT_PLANNED]
    if new:
        number = len(new)
        yield f"{N_(f'{number} new checks')}: {', '.join(check for _, check in new)}"


def _changes(where: Place, before: Side, after: Side) -> Iterator[Finding]:
    """What changed in the outcome of a check and its rows. A known issue is in a table of its own."""
    earlier, later = before.outcome(where), after.outcome(where)
    check = where[1]
    again = (before if later == NOT_PLANNED else after).repeat(where)
    if later == NOT_PLANNED:
        yield _change(VANISHED, where, "", earlier, later, N_(f"{check} was {earlier}, and is not planned any more"), again)
    elif after.is_red(where) and (new_rows := _new_red(where, before, after)) is not None:
        case, measured, _, what = first_red(new_rows)
        sentence = f"{what}{after.how_often(where)}; {_was(earlier)}"
        yield _change(NOW_WRONG, where, case, earlier, measured, sentence, again)
    elif before.is_red(where) and not after.is_red(where) and later != "skipped":
        sentence = f"{N_(f'{check} was {earlier}, is {later}')}{before.how_often(where)}"
        yield _change(NOW_RIGHT, where, "", earlier, later, sentence, again)
    elif before.is_compared(where) and not after.is_compared(where):
        reason = after.worst_check(where)["reason"]
        yield _change(NOT_COMPARED, where, "", earlier, later, N_(f"{check} was {earlier}, is {later}: {reason}"), again)
    elif earlier == "skipped" and after.is_compared(where):
        yield _change(NOW_COMPARED, where, "", earlier, later, N_(f"{check} was {earlier}, is {later}"), again)
    elif gone := _rows_no_longer_compared(where, before, after):
        number, named = len(gone), f"{', '.join(gone[:5])}{', ...' if len(gone) > 5 else ''}"
        sentence = f"{check}: {N_(f'{number} rows are no longer compared')}: {named}"
        yield _change(NOT_COMPARED, where, gone[0], earlier, later, sentence, again)


def _was(earlier: str) -> str:
    return N_(f"it was {earlier}")


def _red_chapters(before: Side, after: Side) -> Iterator[Finding]:
    """Chapters that are red now although none of their checks is, for instance because their text differs."""
    for name, red in after.red_chapters().items():
        if name not in before.red_chapters():
            sentence = format_red(name, red["outcome"], red["reason"])
            yield Finding("", "", name, NOW_WRONG, red["outcome"], "passed", sentence, after.repeat((name, "")))


def _vanished_chapter(name: str, before: Side) -> Finding:
    sentence = N_(f"{name} was run before, and was not run after")
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
    later = after.compared_rows(where)
    return [case for case in before.compared_rows(where) if case not in later]


def has_spread(before: Side, after: Side) -> bool:
    """Whether both sides have several runs, whose differences show the spread."""
    return min(len(before.runs), len(after.runs)) > 1


def pairs(before: Side, after: Side) -> Iterator[tuple[Measured, Measured]]:
    """The rates and memory that both sides measured under the same conditions."""
    later = {_key(each): each for each in rates.measured_by(after.runs)}
    for each in rates.measured_by(before.runs):
        if _key(each) in later:
            yield each, later[_key(each)]


def _key(measured: Measured) -> tuple[str, ...]:
    return measured.notebook, measured.check, measured.case, measured.kind, measured.unit


def allowed_change(earlier: Measured, later: Measured) -> float:
    """By how much the medians may differ, in the unit of the values: what runs of a side differ, within limits."""
    values = [list(each.values.values()) for each in (earlier, later)]
    median = statistics.median(values[0])
    least = LEAST_CHANGE[earlier.kind] * median
    most = least if earlier.kind == "memory" else median * (1 - 1 / MOST_FACTOR[earlier.device])
    if min(map(len, values)) == 1:
        return most
    return min(max(SPREADS * max(max(each) - min(each) for each in values), least), max(least, most))


def changed_rates(before: Side, after: Side) -> Iterator[Finding]:
    """Rates and amounts of memory whose medians differ by more than what is allowed, in either direction."""
    for earlier, later in pairs(before, after):
        medians = [statistics.median(each.values.values()) for each in (earlier, later)]
        allowed = allowed_change(earlier, later)
        change = medians[1] - medians[0]
        if abs(change) <= allowed:
            continue
        kind = _KINDS[earlier.kind, change > 0]
        shown = [earlier.format(value) for value in (*medians, allowed)]
        old, new, most = shown
        sentence = f"{earlier.check}, {earlier.case}: {new}; {_was(old)}; {N_(f'a change of {most} is allowed')}"
        again = after.repeat((earlier.notebook, earlier.check))
        yield Finding("", earlier.check, earlier.case, kind, shown[1], shown[0], sentence, again)


def changed_losses(before: Side, after: Side) -> Iterator[Finding]:
    """Trajectories of losses that differ by more than the tolerance of a baseline from the runs before."""
    for where in before.checks:
        for case, earlier in before.losses(where).items():
            later = after.losses(where).get(case)
            if not later or len({len(values) for values in (*earlier, *later)}) > 1:
                continue
            spread = max(max(step) - min(step) for step in zip(*earlier, strict=True))
            allowed = baselines.tolerance_of("loss", earlier[0], spread, before.result["device"])
            difference = max(abs(one - other) for values in later for one, other in zip(values, earlier[0], strict=True))
            if difference > allowed:
                shown = f"to {later[0][-1]:.6g}", f"to {earlier[0][-1]:.6g}"
                apart = N_(f"losses differ by {difference:.3g} nats, more than {allowed:.3g}")
                sentence = f"{where[1]}, {case}: {apart}"
                yield Finding("", where[1], case, OTHER_LOSS, *shown, sentence, after.repeat(where))


def _tables(before: Side, after: Side) -> list[Table]:
    """The versions that differ first."""
    return [
        *_versions(before, after),
        capability_table(before, after),
        _chapters(before, after),
        *_measured(before, after),
        *_known_issues(before, after),
    ]


def software(run: Run) -> dict[str, str]:
    """What an upgrade changes: versions of packages, driver, Python, the cards' firmware and the operating system."""
    result = run.result
    firmware = sorted({str(card["firmware"]) for card in result["card_facts"] if card["firmware"]})
    machine = {name: str(result["machine"][name]) for name in ("driver", "python", "system") if result["machine"].get(name)}
    return {**result["versions"], **machine, **({"firmware": ", ".join(firmware)} if firmware else {})}


def changed_versions(before: Side, after: Side) -> tuple[tuple[str, str, str], ...]:
    """What differs in software, before and after."""
    earlier, later = software(before.runs[0]), software(after.runs[0])
    names = dict.fromkeys((*earlier, *later))
    both = ((name, earlier.get(name, "none"), later.get(name, "none")) for name in names)
    return tuple((name, old, new) for name, old, new in both if old != new)


def _versions(before: Side, after: Side) -> Iterator[Table]:
    if rows := changed_versions(before, after):
        yield Table(N_("Versions that differ"), ("what", before.name, after.name), rows)


def _chapters(before: Side, after: Side) -> Table:
    """Outcome and seconds of each chapter, and in how many checks both sides have the same bits. Seconds are not judged."""
    columns = ("chapter", before.name, after.name, f"seconds {before.name}", f"seconds {after.name}", "same bits", "of checks")
    seconds = [chapter_seconds(side.runs) for side in (before, after)]
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys((*seconds[0], *seconds[1])):
        with_digests = [where for where in before.checks if where[0] == name and before.digest(where) and after.digest(where)]
        same = sum(before.digest(where) == after.digest(where) for where in with_digests)
        took = [statistics.median(value for value, _ in each[name]) if name in each else None for each in seconds]
        rows.append((name, *(_outcomes(side, name) for side in (before, after)), *took, same, len(with_digests)))
    return Table(N_("Chapters"), columns, tuple(rows))


def _outcomes(side: Side, name: str) -> str:
    found = [notebook["outcome"] for run in side.runs for notebook in run.result["notebooks"] if notebook["name"] == name]
    return ", ".join(dict.fromkeys(found)) or NOT_PLANNED


def _measured(before: Side, after: Side) -> Iterator[Table]:
    rows: list[tuple[Cell, ...]] = []
    for earlier, later in pairs(before, after):
        medians = [statistics.median(each.values.values()) for each in (earlier, later)]
        shown = [earlier.for_a_table(value) for value in (*medians, allowed_change(earlier, later))]
        rows.append((earlier.check, earlier.case, *shown, earlier.table_unit, medians[1] / medians[0]))
    if rows:
        columns = ("check", "case", before.name, after.name, "allowed change", "unit", "factor")
        yield Table(N_("Rates and memory, medians"), columns, tuple(rows))


def _known_issues(before: Side, after: Side) -> Iterator[Table]:
    """Checks that met a known issue on one side only: they say something of the releases."""
    rows: list[tuple[Cell, ...]] = []
    for where in all_places((before, after)):
        outcomes = [side.outcome(where) for side in (before, after)]
        if outcomes[0] != outcomes[1] and set(outcomes) & set(KNOWN):
            side = after if outcomes[1] in KNOWN else before
            rows.append((where[1], *outcomes, side.worst_check(where)["reason"]))
    if rows:
        yield Table(N_("Known issues that differ"), ("check", before.name, after.name, "issue"), tuple(rows))
