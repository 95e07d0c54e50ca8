"""Two runs side by side, a machine before and after a change or two machines: which versions differ, which checks changed their
outcome, which values, losses, rates and amounts of memory moved by more than they may."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xpulab.errors import InputError
from xpulab.fleet.anomaly import Anomaly, first_red, format_red, place, repeat
from xpulab.fleet.compare.comparison import TWO_RUNS, Comparison
from xpulab.fleet.machine_type import hardware, machine_type, software
from xpulab.fleet.outliers import card_facts, disagreements, measured_by
from xpulab.fleet.runs import Run
from xpulab.messages import N_
from xpulab.records import baselines
from xpulab.records.record import COMPARED, RED

NOW_WRONG, NOT_COMPARED, OTHER_VALUE = N_("now wrong"), N_("no longer compared"), N_("other value")
OTHER_LOSSES, SLOWER, MORE_MEMORY = N_("other losses"), N_("slower"), N_("more memory")
FINDINGS = (NOW_WRONG, NOT_COMPARED, OTHER_VALUE, OTHER_LOSSES, SLOWER, MORE_MEMORY)

LOSS_SHARE = 0.01
"""How far losses of two devices may be apart at any step, as a share of the largest loss: kernels of two devices add in another
order, and some round products to fewer bits. Not measured on a GPU or an XPU."""

LEAST_SHARE = 0.5
"""Below this share of the checks that either run compared nothing is said of two runs: two devices skip other checks."""

_SHOWN_ROWS = 5

Place = tuple[str, str]
"""A notebook and a check."""

Check = Mapping[str, Any]


def compare_two(before: Run, after: Run) -> Comparison:
    """Compare the second run with the first. Raises InputError when one has not ended, or their level or seed differ.

    Values must be the same to the last bit on one type of machine, rates and memory stay within the limits of a baseline on
    the same hardware, losses on the same device; on two devices losses stay within LOSS_SHARE.
    """
    _require_comparable(before, after)
    earlier, later = _checks(before), _checks(after)
    changes = [*_notebooks(before, after), *_outcomes(before, after, earlier, later)]
    changed = {change.check for change in changes}
    same_hardware = hardware(before) == hardware(after)
    changes += [each for each in _values(before, after) if each.check not in changed] if same_hardware else []
    changes += _losses(before, after, earlier, later)
    changes += _rates(before, after) if same_hardware else []
    findings = tuple(sorted(changes, key=lambda each: FINDINGS.index(each.kind)))
    notes = (*_differing_facts(before, after), *_notes(before, after, earlier, later))
    both, either = (join(*map(_compared, (earlier, later))) for join in (set.intersection, set.union))
    share = N_("{both} of {either} checks were compared in both runs", both=len(both), either=len(either))
    undecided = [*_other_lengths(earlier, later)]
    if not both or len(both) < LEAST_SHARE * len(either):
        undecided.append(N_("that is too few: run the same notebooks and checks in both"))
    return Comparison(TWO_RUNS, f"{before.name}, then {after.name}", (before, after), findings, notes, share, tuple(undecided))


def _require_comparable(before: Run, after: Run) -> None:
    for run in (before, after):
        if not run.is_finished:
            ended = N_(
                "{source}: the run has not ended (outcome {result}); wait, or run it again",
                source=run.source,
                result=repr(run.result["outcome"]),
            )
            raise InputError(ended)
    for field in ("level", "seed"):
        theirs, ours = before.result[field], after.result[field]
        if theirs != ours:
            raise InputError(
                f"{after.source}: {field} {ours}, but that of {before.source} is {theirs}; run it again with --{field} {theirs}"
            )


def _checks(run: Run) -> dict[Place, Check]:
    return {(notebook["name"], check["name"]): check for notebook, check in run.checks()}


def _compared(checks: Mapping[Place, Check]) -> set[Place]:
    return {where for where, check in checks.items() if check["outcome"] in COMPARED}


def _other_lengths(earlier: Mapping[Place, Check], later: Mapping[Place, Check]) -> Iterator[str]:
    """Trajectories of losses that cannot be compared, because one has more steps."""
    for where in earlier:
        for case, old in _trajectories(earlier[where]).items():
            new = _trajectories(later.get(where)).get(case, old)
            if len(old) != len(new):
                steps = N_("losses of {old} and of {new} steps: run both with the same settings", old=len(old), new=len(new))
                yield f"{place(where[1], case)}: {steps}"


def _notes(before: Run, after: Run, earlier: Mapping[Place, Check], later: Mapping[Place, Check]) -> Iterator[str]:
    reds = ({where for where, check in checks.items() if check["outcome"] in RED} for checks in (earlier, later))
    if still := sorted(check for _, check in set.intersection(*reds)):
        yield f"{N_('wrong before and after: ')}{', '.join(still)}"
    if partial := [run.name for run in (before, after) if run.result["outcome"] == "partial"]:
        yield N_("{partial}: only some checks were run (--check)", partial=", ".join(partial))


def _differing_facts(before: Run, after: Run) -> Iterator[str]:
    """Versions, hardware and facts of cards that are not the same."""
    earlier, later = ({**hardware(run), **software(run), **dict(card_facts(run))} for run in (before, after))
    for name in dict.fromkeys((*earlier, *later)):
        old, new = earlier.get(name, "none"), later.get(name, "none")
        if old != new:
            yield N_("{name} differs: {old}, then {new}", name=name, old=old, new=new)


# --------------------------------------------------------------------------------------------------------- outcomes and values


def _notebooks(before: Run, after: Run) -> Iterator[Anomaly]:
    """Notebooks that were not run, or are red now although none of their checks is: they stopped, or show other text."""
    earlier, later = ({each["name"]: each for each in run.result["notebooks"]} for run in (before, after))
    for name, notebook in earlier.items():
        if name not in later:
            sentence = N_("{name} was run before, and was not run after", name=name)
            yield Anomaly("", "", name, NOT_COMPARED, "not run", notebook["outcome"], sentence, repeat(after, name, ""))
    for name, notebook in later.items():
        if _is_red_alone(notebook) and not (name in earlier and _is_red_alone(earlier[name])):
            sentence = format_red(name, notebook["outcome"], notebook["reason"])
            yield Anomaly("", "", name, NOW_WRONG, notebook["outcome"], "passed", sentence, repeat(after, name, ""))


def _is_red_alone(notebook: Mapping[str, Any]) -> bool:
    return notebook["outcome"] in ("failed", "missing") and not any(check["outcome"] in RED for check in notebook["checks"])


def _outcomes(before: Run, after: Run, earlier: Mapping[Place, Check], later: Mapping[Place, Check]) -> Iterator[Anomaly]:
    """What changed in the outcome of a check and its rows. Two devices need not compare the same checks."""
    one_device = before.result["device"] == after.result["device"]
    run_after = {notebook["name"] for notebook in after.result["notebooks"]}
    for where, new in later.items():
        if new["outcome"] in RED and (red := _new_red(earlier.get(where), new)) is not None:
            was = earlier[where]["outcome"] if where in earlier else N_("not planned")
            case, measured, _, what = first_red(red)
            yield _change(after, where, case, NOW_WRONG, measured, was, f"{what}; {N_('it was {was}', was=was)}")
    for where, old in earlier.items():
        check, was = where[1], old["outcome"]
        if where not in later:
            if one_device and where[0] in run_after:
                sentence = N_("{check} was {was}, and is not planned any more", check=check, was=was)
                yield _change(after, where, "", NOT_COMPARED, "not planned", was, sentence)
            continue
        new = later[where]
        if one_device and was in COMPARED - RED and new["outcome"] == "skipped":
            sentence = N_("{check} was {was}, is {new}: {new2}", check=check, was=was, new=new["outcome"], new2=new["reason"])
            yield _change(after, where, "", NOT_COMPARED, new["outcome"], was, sentence)
        elif one_device and (gone := [case for case in _compared_rows(old) if case not in _compared_rows(new)]):
            number, named = len(gone), f"{', '.join(gone[:_SHOWN_ROWS])}{', ...' if len(gone) > _SHOWN_ROWS else ''}"
            sentence = f"{check}: {N_('{number} rows are no longer compared', number=number)}: {named}"
            yield _change(after, where, gone[0], NOT_COMPARED, new["outcome"], was, sentence)


def _change(after: Run, where: Place, case: str, kind: str, measured: str, expected: str, sentence: str) -> Anomaly:
    return Anomaly("", where[1], case, kind, measured, expected, sentence, repeat(after, *where))


def _new_red(earlier: Check | None, later: Check) -> Check | None:
    """The check that is red now with those of its red rows that were not red before; None when there is nothing new."""
    if earlier is None or earlier["outcome"] not in RED:
        return later
    before = {row["case"] for row in earlier["rows"] if row["outcome"] in RED}
    rows = [row for row in later["rows"] if row["outcome"] in RED and row["case"] not in before]
    return {**later, "rows": rows} if rows else None


def _compared_rows(check: Check) -> list[str]:
    return [row["case"] for row in check["rows"] if row["outcome"] in COMPARED]


def _values(before: Run, after: Run) -> Iterator[Anomaly]:
    """Values that are not the same to the last bit on one type of machine; facts of cards also after an upgrade.

    The firmware is a version, and losses have a tolerance.
    """
    one_type = machine_type(before) == machine_type(after)
    has_losses = {check["name"] for _, check in before.checks() if check["measurements"]}
    for vote in disagreements((before, after)):
        if vote.check in has_losses or (not one_type if vote.check else vote.case.startswith("firmware")):
            continue
        value_of = {node: value for value, nodes in vote.ballots.items() for node in nodes}
        old, new = value_of[before.name], value_of[after.name]
        again = repeat(after, vote.notebook, vote.check) if vote.check else "xpulab doctor"
        yield Anomaly(
            "", vote.check, vote.case, OTHER_VALUE, new, old, f"{vote.where}: {new}; {N_('it was {old}', old=old)}", again
        )


# ------------------------------------------------------------------------------------------------------ losses, rates, memory


def _losses(before: Run, after: Run, earlier: Mapping[Place, Check], later: Mapping[Place, Check]) -> Iterator[Anomaly]:
    """Trajectories of losses that are apart by more than is allowed at any step; those of red checks are left out."""
    device = before.result["device"]
    for where in earlier:
        for case, old in _trajectories(earlier[where]).items():
            new = _trajectories(later.get(where)).get(case, ())
            if len(old) != len(new):
                continue
            one_device = device == after.result["device"]
            allowed = baselines.tolerance_of("loss", old, 0.0, device) if one_device else LOSS_SHARE * max(map(abs, old))
            differences = (abs(one - other) for one, other in zip(old, new, strict=True))
            difference = max(differences, key=lambda each: math.inf if math.isnan(each) else each)
            if not difference <= allowed:
                apart = N_(
                    "losses differ by {difference} nats, more than {allowed}",
                    difference=f"{difference:.3g}",
                    allowed=f"{allowed:.3g}",
                )
                shown = (f"to {new[-1]:.6g}", f"to {old[-1]:.6g}")
                yield _change(after, where, case, OTHER_LOSSES, *shown, f"{place(where[1], case)}: {apart}")


def _trajectories(check: Check | None) -> dict[str, Sequence[float]]:
    """By case the losses that a check recorded."""
    if check is None or check["outcome"] in RED:
        return {}
    return {each["case"]: each["values"] for each in check["measurements"] or () if each["kind"] == "loss"}


def _rates(before: Run, after: Run) -> Iterator[Anomaly]:
    """Rates and memory that both measured, and that got worse by more than a baseline without any spread allows."""
    for measured in measured_by((before, after)):
        if len(measured.values) < 2:
            continue
        old, new = measured.values[before.name], measured.values[after.name]
        tolerance = baselines.tolerance_of(measured.kind, (old,), 0.0, measured.device)
        is_rate = measured.kind == "rate"
        limit = old / tolerance if is_rate else old + tolerance
        if new < limit if is_rate else new > limit:
            shown = [measured.format(value) for value in (new, old, limit)]
            within = N_("up to {limit} is no change", limit=shown[2])
            sentence = f"{place(measured.check, measured.case)}: {shown[0]}; {N_('it was {shown}', shown=shown[1])}; {within}"
            where, kind = (measured.notebook, measured.check), SLOWER if is_rate else MORE_MEMORY
            yield _change(after, where, measured.case, kind, shown[0], shown[1], sentence)
