"""What is shown of both sides of an upgrade: versions, chapters, rates, and known issues that differ."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from xpulab.fleet.compare.changed_values import allowed_change, pairs
from xpulab.fleet.compare.comparison import Cell, Table, chapter_seconds
from xpulab.fleet.compare.sides import NOT_PLANNED, Side, all_places
from xpulab.fleet.runs import Run

_KNOWN = ("known", "fixed")


def tables(before: Side, after: Side) -> list[Table]:
    """The versions that differ first."""
    return [*_versions(before, after), _chapters(before, after), *_measured(before, after), *_known_issues(before, after)]


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
        yield Table("Versions that differ", ("what", before.name, after.name), rows)


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
    return Table("Chapters", columns, tuple(rows))


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
        yield Table("Rates and memory, medians", columns, tuple(rows))


def _known_issues(before: Side, after: Side) -> Iterator[Table]:
    """Checks that met a known issue on one side only: they say something of the releases."""
    rows: list[tuple[Cell, ...]] = []
    for where in all_places((before, after)):
        outcomes = [side.outcome(where) for side in (before, after)]
        if outcomes[0] != outcomes[1] and set(outcomes) & set(_KNOWN):
            side = after if outcomes[1] in _KNOWN else before
            rows.append((where[1], *outcomes, side.worst_check(where)["reason"]))
    if rows:
        yield Table("Known issues that differ", ("check", before.name, after.name, "issue"), tuple(rows))
