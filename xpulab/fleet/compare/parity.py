"""The same chapters on several devices: which checks each of them compared, and whether their values agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.compare.comparison import (
    KNOWN,
    NOT_PLANNED,
    PARITY,
    Cell,
    Comparison,
    Place,
    Side,
    Table,
    all_places,
    chapter_seconds,
    require_comparable,
)
from xpulab.fleet.finding import Finding, first_red, format_red, place
from xpulab.fleet.machine_type import differing_names, format_nodes, machine_type
from xpulab.fleet.runs import Run
from xpulab.messages import N_

WRONG, MISSING, OTHER_LOSS = N_("wrong"), N_("missing check"), N_("other losses")
FINDINGS = (WRONG, MISSING, OTHER_LOSS)

LOSS_SHARE = 0.01
"""How far losses of two devices may be apart at any step, as a share of the largest loss. Kernels of two devices add in another
order, and some round products to fewer bits; a chapter's first training has the same bound. Not measured on a GPU or an XPU."""

NEAR = 0.5
"""A value that uses this share of its tolerance on one device is listed when another device uses less than half of it."""

_BOUND = re.compile(r"^(?:within|<) (\d[\d.]*(?:e[-+]?\d+)?)$")
_MOST_NEAR = 20


def compare_devices(runs: Sequence[Run]) -> Comparison:
    """Devices, of which the one that is named first is compared with each other one.

    Raises InputError when runs have the same device, or not the same level and seed.
    """
    require_comparable(runs)
    sides = [Side(run.result["device"], (run,)) for run in runs]
    names = [side.name for side in sides]
    if repeated := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{names.count(repeated[0])} runs on {repeated[0]}: parity compares devices; name one run of each")
    common = set.intersection(*(set(side.chapters) for side in sides))
    if not common:
        raise InputError(f"the runs on {', '.join(names)} have no chapter in common; run the same ones on each device")
    findings = [finding for where in all_places(sides) if where[0] in common for finding in _wrong(where, sides)]
    findings += [finding for side in sides for finding in _red_chapters(side)]
    findings += [finding for other in sides[1:] for finding in _other_losses(sides[0], other)]
    findings.sort(key=lambda each: FINDINGS.index(each.kind))
    tables = [_chapters(sides), *_losses(sides), *_not_everywhere(sides), *_known(sides), *_near(sides)]
    subject = f"{', '.join(names)} at level {runs[0].result['level']}"
    return Comparison(PARITY, subject, tuple(runs), tuple(findings), (), tuple(_notes(runs, sides)), tuple(tables))


def _notes(runs: Sequence[Run], sides: Sequence[Side]) -> Iterator[str]:
    for chapter in dict.fromkeys(name for side in sides for name in side.chapters):
        if without := [side.name for side in sides if chapter not in side.chapters]:
            yield N_(f"{chapter} was not run on {', '.join(without)}, so it is not compared there")
    types = [machine_type(run) for run in runs]
    for name in differing_names(types):
        if name != "device":
            values = (dict(each).get(name, "none") for each in types)
            yield f"{name} differs: {', '.join(f'{run.name} {value}' for run, value in zip(runs, values, strict=True))}"
    if partial := [run.name for run in runs if run.result["outcome"] == "partial"]:
        yield N_(f"{format_nodes(partial)}: only some checks were run (--check)")


def _wrong(where: Place, sides: Sequence[Side]) -> Iterator[Finding]:
    """What is red on a device, with what it is on the others; what one device's run does not have."""
    check, outcomes = where[1], {side.name: side.outcome(where) for side in sides}
    for side in sides:
        elsewhere = "; ".join(f"{name}: {outcome}" for name, outcome in outcomes.items() if name != side.name)
        if side.outcome(where) == NOT_PLANNED:
            sentence = f"{N_(f'{check} is not in the run on {side.name}')}; {elsewhere}"
            yield Finding(side.runs[0].name, check, "", MISSING, NOT_PLANNED, elsewhere, sentence, side.repeat(where))
        elif side.is_red(where):
            case, measured, expected, what = first_red(side.worst_check(where))
            kind = MISSING if side.outcome(where) == "missing" else WRONG
            sentence = f"{side.name}: {what}; {elsewhere}"
            yield Finding(side.runs[0].name, check, case, kind, measured, expected, sentence, side.repeat(where))


def _red_chapters(side: Side) -> Iterator[Finding]:
    for name, red in side.red_chapters().items():
        sentence = f"{side.name}: {format_red(name, red['outcome'], red['reason'])}"
        yield Finding(side.runs[0].name, "", name, WRONG, red["outcome"], "passed", sentence, side.repeat((name, "")))


def _trajectories(side: Side) -> dict[tuple[Place, str], Sequence[float]]:
    """By check and case the losses of a side's run, those of red checks left out."""
    of_checks = ((where, side.losses(where)) for where in side.checks if not side.is_red(where))
    return {(where, case): values[-1] for where, losses in of_checks for case, values in losses.items()}


def _difference(one: Sequence[float], other: Sequence[float]) -> float | None:
    """The largest difference at any step; None when there are not as many steps."""
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) if len(one) == len(other) else None


def _other_losses(first: Side, other: Side) -> Iterator[Finding]:
    later = _trajectories(other)
    for (where, case), values in _trajectories(first).items():
        difference = _difference(values, later.get((where, case), ()))
        allowed = LOSS_SHARE * max(map(abs, values))
        if difference is not None and difference > allowed:
            shown = (f"to {later[where, case][-1]:.6g}", f"to {values[-1]:.6g}")
            names = f"{other.name}, {first.name}"
            apart = N_(f"losses on {names} differ by {difference:.3g}, more than {allowed:.3g}")
            sentence = f"{place(where[1], case)}: {apart}"
            yield Finding(other.runs[0].name, where[1], case, OTHER_LOSS, *shown, sentence, other.repeat(where))


def _chapters(sides: Sequence[Side]) -> Table:
    """Of each chapter its outcome on each device, how many checks were compared, and how many have the bits of the first."""
    first = sides[0]
    columns = ["chapter", *(side.name for side in sides)]
    columns += [f"same bits on {first.name} and {side.name}" for side in sides[1:]]
    columns += [f"seconds {side.name}" for side in sides]
    seconds = [chapter_seconds(side.runs) for side in sides]
    rows: list[tuple[Cell, ...]] = []
    for name in dict.fromkeys(name for side in sides for name in side.chapters):
        places = [where for where in all_places(sides) if where[0] == name]
        compared = (f"{sum(side.is_compared(where) for where in places)} of {len(places)}" for side in sides)
        bits = (_same_bits(first, side, places) for side in sides[1:])
        took = (each[name][0][0] if name in each else None for each in seconds)
        rows.append((name, *compared, *bits, *took))
    return Table(N_("Checks that compared something, by chapter"), tuple(columns), tuple(rows))


def _same_bits(first: Side, other: Side, places: Sequence[Place]) -> str:
    both = [where for where in places if first.digest(where) and other.digest(where)]
    return f"{sum(first.digest(where) == other.digest(where) for where in both)} of {len(both)}"


def _losses(sides: Sequence[Side]) -> Iterator[Table]:
    """Where a trajectory ends on each device, and how far it is from that of the first at any step."""
    of_sides = [_trajectories(side) for side in sides]
    rows: list[tuple[Cell, ...]] = []
    for (where, case), values in of_sides[0].items():
        others = [each.get((where, case)) for each in of_sides[1:]]
        if any(others):
            differences = (None if other is None else _difference(values, other) for other in others)
            ends = (None if each is None else each[-1] for each in (values, *others))
            rows.append((where[1], case, len(values), *ends, *differences, LOSS_SHARE * max(map(abs, values))))
    if rows:
        names = [side.name for side in sides]
        differing = (f"largest difference {name}" for name in names[1:])
        columns = ("check", "case", "steps", *(f"last {name}" for name in names), *differing, "allowed")
        yield Table(N_("Losses"), columns, tuple(rows))


def _not_everywhere(sides: Sequence[Side]) -> Iterator[Table]:
    """Checks that were compared on one device and skipped on another, and how many rows were, with the reason."""
    rows: list[tuple[Cell, ...]] = []
    for where in all_places(sides):
        if any(side.is_compared(where) for side in sides):
            for side in sides:
                if reason := _why_not(side, where, sides):
                    on = ", ".join(other.name for other in sides if other is not side and other.is_compared(where))
                    rows.append((where[0], where[1], on or side.name, side.name, reason))
    if rows:
        yield Table(
            N_("Compared on one device, skipped on another"),
            ("chapter", "check", "compared on", "skipped on", "reason"),
            tuple(rows),
        )


def _why_not(side: Side, where: Place, sides: Sequence[Side]) -> str | None:
    """Why a check or some of its rows were not compared on a device, while they were on another one."""
    if side.outcome(where) == "skipped":
        return str(side.worst_check(where)["reason"])
    if not side.is_compared(where):
        return None
    others = {case for other in sides if other.is_compared(where) for case in other.compared_rows(where)}
    skipped = [row for row in side.checks[where][0]["rows"] if row["outcome"] == "skipped" and row["case"] in others]
    return f"{len(skipped)} rows: {skipped[0]['case']}: {skipped[0]['reason']}" if skipped else None


def _known(sides: Sequence[Side]) -> Iterator[Table]:
    """Checks that meet a known issue on some of the devices on which they were compared."""
    rows: list[tuple[Cell, ...]] = []
    for where in all_places(sides):
        compared = {side.name: side.outcome(where) for side in sides if side.is_compared(where)}
        if len(set(compared.values())) > 1 and set(compared.values()) & set(KNOWN):
            rows.append((where[1], *(side.outcome(where) for side in sides)))
    if rows:
        yield Table(N_("Known issues that not all devices meet"), ("check", *(side.name for side in sides)), tuple(rows))


def _near(sides: Sequence[Side]) -> Iterator[Table]:
    """Values that are near their tolerance on one device, and far from it on another: right, but worth a look."""
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for side in sides:
        for (_, name), checks in side.checks.items():
            for each in checks[0]["rows"] or checks[:1]:
                if (share := _share_of_tolerance(each)) is not None:
                    shares.setdefault((name, each.get("case", "")), {})[side.name] = share
    rows = [
        (*where, *(on.get(side.name) for side in sides))
        for where, on in sorted(shares.items(), key=lambda pair: -max(pair[1].values()))
        if len(on) > 1 and max(on.values()) >= NEAR > 2 * min(on.values())
    ]
    if rows:
        columns = ("check", "case", *(f"share on {side.name}" for side in sides))
        yield Table(N_("Near the tolerance on one device only (share of it that is used)"), columns, tuple(rows[:_MOST_NEAR]))


def _share_of_tolerance(compared: Mapping[str, Any]) -> float | None:
    """How much of its tolerance a value uses; None for what has none that is a plain number."""
    bound = _BOUND.match(str(compared["expected"]))
    measured = compared["measured"]
    if compared["outcome"] != "passed" or bound is None or not isinstance(measured, float) or measured < 0:
        return None
    return measured / float(bound[1]) if float(bound[1]) else None
