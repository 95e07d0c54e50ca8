"""An executed notebook in, a verdict out. Nothing else is asked: a notebook copied from another machine can be judged. (The
kernel's log beside it, if there is one, can only add an explanation.)

What was planned is read from the committed notebook, what was seen from the executed one, and the text that both show is
compared by nbval's own comparison. Nothing planned may be missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

from xpulab.harness.chapter import read_notebook
from xpulab.harness.execute import Run
from xpulab.harness.explain import Explanation, explain
from xpulab.harness.lost import missing_checks
from xpulab.harness.plan import Plan
from xpulab.harness.sections import code_cells
from xpulab.messages import N_, plain
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
    """The records of one section of a notebook, in reading order.

    title: the section's heading; "" for records that were not planned. part: "lesson", "proof" or "exercise".
    """

    title: str
    part: str
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Verdict:
    """The judgement of one notebook.

    name, title: the notebook's.
    outcome: "passed", "failed", "partial" (green, but only some of its sections were asked for), "skipped" (it was not to
    run here) or "missing" (it never ran).
    run: how it was run, None when it was not.
    groups: one record for each planned check, by section; then those that were not planned.
    run_context: where it ran, None when the notebook did not record it.
    reasons: why it is not green, one sentence each.
    executed: the executed notebook, None when there is none.
    partial: whether only some of its sections were asked for, whatever the outcome.
    explanations: known causes of what went wrong, with their remedies; empty when it is green.
    of_release: whether the notebook judges the release, and not the machine.
    """

    name: str
    title: str
    outcome: str
    run: Run | None = None
    groups: tuple[Group, ...] = ()
    run_context: RunContext | None = None
    reasons: tuple[str, ...] = ()
    executed: Path | None = None
    partial: bool = False
    explanations: tuple[Explanation, ...] = ()
    of_release: bool = False

    @property
    def records(self) -> tuple[Record, ...]:
        """Those of all groups."""
        return tuple(record for group in self.groups for record in group.records)

    @property
    def no_verdict(self) -> str | None:
        """What around the run kept it from a verdict; None where it has one: it is green, or a check compared what is wrong.

        Where a place of the run could not be written at the end, nothing that is red counts.
        """
        if self.outcome not in ("failed", "missing"):
            return None
        if self.run and self.run.lacking:
            return self.run.lacking
        around = [known for known in self.explanations if known.no_verdict]
        if not around or any(record.outcome == "failed" for record in self.records):
            return None
        return N_("{where}: {cause}", where=around[0].where, cause=around[0].cause)

    @property
    def seconds(self) -> float:
        """How long it ran; 0.0 when it did not."""
        return self.run.seconds if self.run else 0.0

    @property
    def reason(self) -> str | None:
        """All reasons in one line; None when there is none."""
        return "; ".join(self.reasons) or None

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
    notebook = read_notebook(executed)
    stored = notebook.metadata.get(METADATA_KEY, {}).get("run")
    run = Run(**stored) if stored else None
    metadata = [output.metadata for cell in notebook.cells for output in cell.get("outputs", []) if "metadata" in output]
    recorded = filter(None, map(record_in, metadata))
    records = reconcile([check.name for check in plan.checks], recorded, missing_checks(plan, notebook))
    run_context = next(filter(None, map(run_context_in, metadata)), None)
    reasons = tuple(map(plain, _reasons(plan, run, run_context, records, notebook)))
    outcome = ("partial" if plan.partial else "passed") if is_green(records) and not reasons else "failed"
    reasons += (run.lacking,) if outcome == "failed" and run and run.lacking else ()
    verdict = _verdict_of(plan, outcome, records, reasons, run=run, run_context=run_context, executed=executed)
    if outcome != "failed":
        return verdict
    device, log = run.device if run else _COMMITTED_DEVICE, executed.with_suffix(".log")
    ended = "\n".join(filter(None, (run.stopped, run.lacking))) if run else ""
    return replace(verdict, explanations=explain(notebook, records, log, device, ended))


def not_run(plan: Plan, outcome: str, reason: str) -> Verdict:
    """The verdict on a notebook that was planned but not executed; its checks have the outcome of the notebook."""
    records = tuple(Record(check.name, outcome, means=N_("not run"), reason=reason) for check in plan.checks)
    return _verdict_of(plan, outcome, records, (reason,))


def _verdict_of(plan: Plan, outcome: str, records: Sequence[Record], reasons: tuple[str, ...], **known: Any) -> Verdict:
    """A verdict with what follows from the plan. known: further fields."""
    rest = {record.name: record for record in records}
    groups = []
    for section in plan.sections:
        checks = [check.name for check in plan.checks if plan.chapter.section_of(check) == section]
        groups.append(Group(section.title, section.part, tuple(rest.pop(name) for name in checks)))
    groups = [group for group in (*groups, Group("", "proof", tuple(rest.values()))) if group.records]
    chapter = plan.chapter
    stated = {"partial": plan.partial, "of_release": chapter.is_of_release, **known}
    return Verdict(plan.name, chapter.title, outcome, groups=tuple(groups), reasons=reasons, **stated)


def _reasons(
    plan: Plan, run: Run | None, run_context: RunContext | None, records: tuple[Record, ...], notebook: NotebookNode
) -> Iterator[str]:
    if run and run.stopped:
        yield run.stopped
    if run and run_context and run_context.device != run.device:
        yield N_("it was to run on {device}, but ran on {device2}", device=run.device, device2=run_context.device)
    if run and not run_context and not run.stopped and run.device != _COMMITTED_DEVICE:
        yield N_("it was to run on {device}, but did not record where it ran", device=run.device)
    red = [record.name for record in records if record.outcome in RED]
    errors = list(_errors(plan, notebook, red))
    yield from errors
    if red:
        yield N_("{red} of {records} checks are red: {red2}", red=len(red), records=len(records), red2=", ".join(red))
    elif not any(map(is_compared, records)):
        yield N_("nothing was compared, so the notebook is not green")
    is_other = run is not None and (run.stopped is not None or run.seed != _COMMITTED_SEED)  # other text is right then
    if not (is_other or errors or red):
        yield from _differences(notebook, plan.notebook, run_context.device if run_context else _COMMITTED_DEVICE)


def _errors(plan: Plan, notebook: NotebookNode, red: list[str]) -> Iterator[str]:
    """The cells that raised, a line for each; beside anything else red verdict()'s error adds nothing."""
    found = [
        (number, output)
        for index, number in code_cells(notebook).items()
        for output in notebook.cells[index].outputs
        if output.output_type == "error"
    ]
    others = [each for each in found if each[1].ename != "NotebookIsRed"]
    for number, output in others if red or others else found:
        first = (output.evalue.strip().splitlines() or [""])[0]
        place = plan.chapter.place_of(number)
        yield N_("{place} raised {ename}: {first}", place=place, ename=output.ename, first=first[:300])


# ----------------------------------------------------------------------------------------- the text that a reader is shown


def _differences(notebook: NotebookNode, committed: NotebookNode, device: str) -> Iterator[str]:
    """Where the text of the executed notebook differs from the committed one, by nbval's comparison."""
    executed_cells, committed_cells = ([book.cells[index] for index in code_cells(book)] for book in (notebook, committed))
    if [cell.source for cell in executed_cells] != [cell.source for cell in committed_cells]:
        yield N_("its cells are not those of the committed notebook, so their text cannot be compared")
        return
    from xpulab.harness.shown_text import Comparison  # nbval imports pytest: not before the first notebook has ended

    comparison = Comparison(is_sanitized=device != _COMMITTED_DEVICE)
    for cell, mine, theirs in zip(code_cells(notebook).values(), executed_cells, committed_cells, strict=True):
        if difference := comparison.difference(mine, theirs):
            yield N_(
                "cell {cell} shows text that differs from the committed notebook: {difference}",
                cell=cell,
                difference=difference,
            )
