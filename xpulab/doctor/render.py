"""Formats a diagnosis as plain text: the outcome, then the problems with their remedies, then everything else."""

from __future__ import annotations

from xpulab.doctor.detect import format_looked_for
from xpulab.doctor.diagnosis import Diagnosis, Finding
from xpulab.doctor.versions import VersionRow


def format_diagnosis(diagnosis: Diagnosis) -> str:
    """Several lines without colours."""
    things = diagnosis.things
    problems = [thing for thing in things if thing.verdict != "ok"]
    text = [f"{diagnosis.outcome}: {len(problems)} of {len(things)} findings are not ok on device {diagnosis.device}"]
    for thing in problems:
        text.append(f"\n{_line(thing)}")
        if isinstance(thing, Finding) and thing.cause:
            text.append(f"{'':9}cause: {thing.cause}")
        if thing.remedy:
            text.append(f"{'':9}fix: {thing.remedy}")
    text.append("\nlooked for:")
    text += [f"  {line}" for line in format_looked_for(diagnosis.detection)]
    text += [f"  note: {note}" for note in diagnosis.detection.notes]
    text.append("\nok:")
    text += [f"  {_line(thing)}" for thing in things if thing.verdict == "ok"]
    return "\n".join(text)


def _line(thing: Finding | VersionRow) -> str:
    if isinstance(thing, VersionRow):
        return f"{thing.verdict:8} {thing.what} {thing.found or 'not found'}, wanted {thing.wanted}"
    return f"{thing.verdict:8} {thing.id}: {thing.seen}"
