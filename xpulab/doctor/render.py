"""A diagnosis as plain text: the outcome first, then what is not right with its remedy, then everything else."""

from __future__ import annotations

from xpulab.doctor.detect import looked_for_lines
from xpulab.doctor.diagnosis import Diagnosis, Finding
from xpulab.doctor.versions import VersionRow


def as_text(diagnosis: Diagnosis) -> str:
    """Several lines, without colours."""
    things = (*diagnosis.findings, *diagnosis.versions)
    troubles = [thing for thing in things if thing.verdict != "ok"]
    text = [f"{diagnosis.outcome}: {len(troubles)} of {len(things)} things to look at on device {diagnosis.device}"]
    for thing in troubles:
        text.append(f"\n{_line(thing)}")
        if thing.remedy:
            text.append(f"{'':9}mend: {thing.remedy}")
    text.append("\nlooked for:")
    text += [f"  {line}" for line in looked_for_lines(diagnosis.detection)]
    text += [f"  note: {note}" for note in diagnosis.detection.notes]
    text.append("\nin order:")
    text += [f"  {_line(thing)}" for thing in things if thing.verdict == "ok"]
    return "\n".join(text)


def _line(thing: Finding | VersionRow) -> str:
    if isinstance(thing, VersionRow):
        return f"{thing.verdict:8} {thing.what} {thing.found or 'not found'}, wanted {thing.wanted}"
    return f"{thing.verdict:8} {thing.id}: {thing.seen}"
