"""An executed notebook in, a verdict out. Nothing else is asked: a notebook copied from another machine can be judged. (The
kernel's log beside it, if there is one, can only add an explanation.)

What was planned is read from the committed notebook, what was seen from the executed one, and the text that both show is
compared by nbval's own comparison. Nothing planned may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from xpulab.harness.chapter import read_notebook
from xpulab.harness.execute import Run
from xpulab.harness.explain import Explanation, explain
from xpulab.harness.lost import label, left_out_of
from xpulab.harness.plan import Plan
from xpulab.harness.sections import INJECTED, number_of
from xpulab.messages import N_
from xpulab.records.record import (
    METADATA_KEY,
    RED,
    Record,
    RunContext,
    is_compared,
    is_green,
    reconcile,
    record_in,
    run_context_in,
)

_COMMITTED_DEVICE = "cpu"
_COMMITTED_SEED = 0


@dataclass(frozen=True)
class Group:
    """The checks of one section of a notebook.

    title: the section's heading. part: "lesson", "proof" or "exercise". checks: the names of its checks, in reading order.
    """

    title: str
    part: str
    checks: tuple[str, ...]


@dataclass(frozen=True)
class Verdict:
    """The judgement of one notebook.

    name, title: the notebook's.
    outcome: "passed", "failed", "partial" (green, but only some of its sections were asked for), "skipped" (it was not to
    run here) or "missing" (it never ran); while a run is under way "waiting".
    run: how it was run, None when it was not.
    records: one for each planned check.
    run_context: where it ran, None when the notebook did not record it.
    reasons: why it is not green, one sentence each.
    notes: what is worth knowing although it is no failure.
    executed: the executed notebook, None when there is none.
    partial: whether only some of its sections were asked for, whatever the outcome.
    groups: the sections that plan a check, in reading order.
    explanations: known causes of what went wrong, with their remedies; empty when it is green.
    of_release: whether the notebook judges the release, and not the machine.
    """

    name: str
    title: str
    outcome: str
    run: Run | None = None
    records: tuple[Record, ...] = ()
    run_context: RunContext | None = None
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    executed: Path | None = None
    partial: bool = False
    groups: tuple[Group, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    of_release: bool = False

    @property
    def grouped_records(self) -> tuple[tuple[Group, tuple[Record, ...]], ...]:
        """Each group with its records; records that no group names, which were not planned, come last."""
        by_name = {record.name: record for record in self.records}
        grouped = [(group, tuple(by_name.pop(name) for name in group.checks if name in by_name)) for group in self.groups]
        if by_name:
            grouped.append((Group(N_("Not planned") if self.groups else "", "proof", tuple(by_name)), tuple(by_name.values())))
        return tuple(grouped)

    @property
    def seconds(self) -> float:
        """How long it ran; 0.0 when it did not."""
        return self.run.seconds if self.run else 0.0

    @property
    def reason(self) -> str | None:
        """All reasons in one line; None when there is none."""
        return "; ".join(self.reasons) or None

    @property
    def reason_in_short(self) -> str | None:
        """The first reason, and how many more there are; None when there is none."""
        more = len(self.reasons) - 1
        if not self.reasons:
            return None
        return N_("{reasons} (and {more} more)", reasons=self.reasons[0], more=more) if more else self.reasons[0]

    @property
    def controls_rejected(self) -> int:
        """How many controls were rejected."""
        return sum(record.control == "rejected" for record in self.records)

    @property
    def compared(self) -> int:
        """How many checks compared something."""
        return sum(map(is_compared, self.records))


def judge(plan: Plan, executed: Path) -> Verdict:
    """Judge an executed notebook against the committed one that `plan` was read from."""
    notebook, committed = read_notebook(executed), plan.notebook
    stored = notebook.metadata.get(METADATA_KEY, {}).get("run")
    run = Run(**stored) if stored else None
    metadata = [output.metadata for cell in notebook.cells for output in cell.get("outputs", []) if "metadata" in output]
    missing = left_out_of(plan, notebook).missing
    records = reconcile([check.name for check in plan.checks], filter(None, map(record_in, metadata)), missing)
    run_context = next(filter(None, map(run_context_in, metadata)), None)
    reasons = tuple(_reasons(plan, run, run_context, records, notebook, committed))
    outcome = ("partial" if plan.partial else "passed") if is_green(records) and not reasons else "failed"
    device = run.device if run else _COMMITTED_DEVICE
    log = executed.with_suffix(".log")
    return _verdict_of(
        plan,
        outcome,
        run=run,
        records=records,
        run_context=run_context,
        reasons=reasons,
        notes=tuple(_notes(run)),
        executed=executed,
        explanations=explain(_code_cells(notebook), records, log, device) if outcome == "failed" else (),
    )


def not_run(plan: Plan, outcome: str, reason: str) -> Verdict:
    """The verdict on a notebook that was planned but not executed; its checks have the outcome of the notebook."""
    records = tuple(Record(check.name, outcome, means=N_("not run"), reason=reason) for check in plan.checks)
    return _verdict_of(plan, outcome, records=records, reasons=(reason,))


def not_ended(plan: Plan) -> Verdict:
    """What is said of a notebook while the run is under way."""
    return _verdict_of(plan, "waiting", reasons=(N_("it has not ended"),))


def _verdict_of(plan: Plan, outcome: str, **known: Any) -> Verdict:
    """A verdict with what follows from the plan. known: further fields."""
    of_release = plan.chapter.is_of_release
    return Verdict(plan.name, plan.title, outcome, partial=plan.partial, groups=_groups(plan), of_release=of_release, **known)


def _groups(plan: Plan) -> tuple[Group, ...]:
    """The sections that run and plan a check, each with the names of its checks."""
    names: dict[str, list[str]] = {section.name: [] for section in plan.sections}
    for check in plan.checks:
        names[plan.chapter.section_of(check).name].append(check.name)
    return tuple(Group(each.title, each.part, tuple(names[each.name])) for each in plan.sections if names[each.name])


def _reasons(
    plan: Plan,
    run: Run | None,
    run_context: RunContext | None,
    records: tuple[Record, ...],
    notebook: NotebookNode,
    committed: NotebookNode,
) -> Iterator[str]:
    if run and run.stopped:
        yield run.stopped
    if run and run_context and run_context.device != run.device:
        yield N_("it was to run on {device}, but ran on {device2}", device=run.device, device2=run_context.device)
    if run and not run_context and not run.stopped and run.device != _COMMITTED_DEVICE:
        yield N_("it was to run on {device}, but did not record where it ran", device=run.device)
    red = [record.name for record in records if record.outcome in RED]
    errors = list(_errors(plan, run, notebook, red))
    yield from errors
    if left_out := [cell for cell in _code_cells(notebook) if _needs(cell)]:
        yield N_("{left_out} cells were left out, since they need paddle, which cannot be imported", left_out=len(left_out))
    if red:
        yield N_("{red} of {records} checks are red: {red2}", red=len(red), records=len(records), red2=", ".join(red))
    elif not any(map(is_compared, records)):
        yield N_("nothing was compared, so the notebook is not green")
    if not (run and (run.stopped or run.seed != _COMMITTED_SEED)) and not errors:  # with another seed other text is right
        yield from _differences(notebook, committed, run_context.device if run_context else _COMMITTED_DEVICE)


def _notes(run: Run | None) -> Iterator[str]:
    if run is None:
        yield N_("it was not run by xpulab: no time and no device are on record")
        return
    if run.seconds > 1.5 * run.budget_seconds:
        yield N_(
            "it took {seconds} s, its budget is {budget_seconds} s",
            seconds=f"{run.seconds:.0f}",
            budget_seconds=f"{run.budget_seconds:.0f}",
        )


def _errors(plan: Plan, run: Run | None, notebook: NotebookNode, red: list[str]) -> Iterator[str]:
    """The cells that raised, a line for each; beside anything else red verdict()'s error adds nothing."""
    found = [
        (number_of(cell, number), output)
        for number, cell in enumerate(_code_cells(notebook), start=1)
        for output in cell.outputs
        if output.output_type == "error"
    ]
    others = [each for each in found if each[1].ename != "NotebookIsRed"]
    for number, output in others if red or others else found:
        first = (output.evalue.strip().splitlines() or [""])[0]
        yield N_("{plan} raised {ename}: {first}", plan=label(plan, number), ename=output.ename, first=first[:300])


def _code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code" and INJECTED not in cell.metadata.get("tags", [])]


# ----------------------------------------------------------------------------------------- the text that a reader is shown


def _differences(notebook: NotebookNode, committed: NotebookNode, device: str) -> Iterator[str]:
    """Where the text of the executed notebook differs from the committed one, by nbval's comparison."""
    executed_cells, committed_cells = _code_cells(notebook), _code_cells(committed)
    if [cell.source for cell in executed_cells] != [cell.source for cell in committed_cells]:
        yield N_("its cells are not those of the committed notebook, so their text cannot be compared")
        return
    from xpulab.harness.shown_text import Comparison  # nbval imports pytest: not before the first notebook has ended

    comparison = Comparison(is_sanitized=device != _COMMITTED_DEVICE)
    for number, (mine, theirs) in enumerate(zip(executed_cells, committed_cells, strict=True), start=1):
        if not comparison.applies(theirs) or _holds_red(mine) or _needs(mine):
            continue
        if difference := comparison.difference(mine, theirs):
            yield N_(
                "cell {mine} shows text that differs from the committed notebook: {difference}",
                mine=number_of(mine, number),
                difference=difference,
            )


def _needs(cell: NotebookNode) -> bool:
    """Whether the cell was left out because a package that it needs cannot be imported: a reason of its own."""
    return any("needs" in output.get("metadata", {}).get(METADATA_KEY, {}) for output in cell.outputs)


def _holds_red(cell: NotebookNode) -> bool:
    """Whether one of its checks is red: its text then differs from the committed cell anyway."""
    records = (record_in(output.get("metadata", {})) for output in cell.outputs)
    return any(record and record.outcome in RED for record in records)
