"""Formats a diagnosis as plain text: the outcome, then the problems with their remedies, then everything else."""

from __future__ import annotations

from xpulab.doctor.detect import format_looked_for
from xpulab.doctor.diagnosis import Diagnosis, Finding
from xpulab.doctor.finding import format_verdict
from xpulab.doctor.versions import VersionRow
from xpulab.messages import N_, labelled, shown


def format_diagnosis(diagnosis: Diagnosis) -> str:
    """Several lines without colours, in the chosen language."""
    things = diagnosis.things
    problems = [thing for thing in things if thing.verdict != "ok"]
    outcome, device = diagnosis.outcome, diagnosis.device
    text = [shown(f"{outcome}: {len(problems)} of {len(things)} findings are not ok on device {device}")]
    for thing in problems:
        text.append(f"\n{_line(thing)}")
        if isinstance(thing, Finding) and thing.cause:
            text.append(f"{'':9}{labelled('cause: ', thing.cause)}")
        if thing.remedy:
            text.append(f"{'':9}{labelled('fix: ', thing.remedy)}")
    text.append("\n" + shown("looked for:"))
    text += [f"  {shown(line)}" for line in format_looked_for(diagnosis.detection)]
    text += [f"  {labelled('note: ', note)}" for note in diagnosis.detection.notes]
    text.append("\n" + shown("ok:"))
    text += [f"  {_line(thing)}" for thing in things if thing.verdict == "ok"]
    return "\n".join(text)


def _line(thing: Finding | VersionRow) -> str:
    verdict = format_verdict(thing.verdict)
    if isinstance(thing, VersionRow):
        found = thing.found or N_("not found")
        return f"{verdict} {shown(f'{thing.what} {found}, wanted {thing.wanted}')}"
    return f"{verdict} {thing.id}: {shown(thing.seen)}"
