"""Formats findings as plain text: the outcome, then the problems with their remedies, then everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpulab.doctor.detect import format_looked_for
from xpulab.doctor.diagnosis import Diagnosis
from xpulab.doctor.finding import Finding, format_verdict
from xpulab.doctor.host import HostReport
from xpulab.doctor.versions import VersionRow
from xpulab.messages import N_, labelled, shown


def format_diagnosis(diagnosis: Diagnosis) -> str:
    """Several lines without colours, in the chosen language."""
    things = diagnosis.things
    problems = [thing for thing in things if thing.verdict != "ok"]
    outcome, device = diagnosis.outcome, diagnosis.device
    text = [
        shown(
            N_(
                "{outcome}: {problems} of {things} findings are not ok on device {device}",
                outcome=outcome,
                problems=len(problems),
                things=len(things),
                device=device,
            )
        ),
        *_with_remedies(problems),
    ]
    text.append("\n" + shown("looked for:"))
    text += [f"  {shown(line)}" for line in format_looked_for(diagnosis.detection)]
    text.append("\n" + shown("ok:"))
    text += [f"  {_line(thing)}" for thing in things if thing.verdict == "ok"]
    return "\n".join(text)


def format_host(report: HostReport) -> str:
    """The same of `xpulab doctor --host`; what could not be read is no problem."""
    problems = [finding for finding in report.findings if finding.verdict in ("wrong", "warn")]
    outcome, node = report.outcome, report.node
    text = [
        shown(
            N_(
                "{outcome}: {problems} of {findings} findings about host {node} are not ok",
                outcome=outcome,
                problems=len(problems),
                findings=len(report.findings),
                node=node,
            )
        )
    ]
    text += [*_with_remedies(problems), "\n" + shown("ok, or not known:")]
    return "\n".join([*text, *(f"  {_line(finding)}" for finding in report.findings if finding not in problems)])


def _with_remedies(problems: Sequence[Finding | VersionRow]) -> Iterator[str]:
    for thing in problems:
        yield f"\n{_line(thing)}"
        if isinstance(thing, Finding) and thing.cause:
            yield f"{'':9}{labelled('cause: ', thing.cause)}"
        if thing.remedy:
            yield f"{'':9}{labelled('fix: ', thing.remedy)}"


def _line(thing: Finding | VersionRow) -> str:
    verdict = format_verdict(thing.verdict)
    if isinstance(thing, VersionRow):
        found = thing.found or N_("not found")
        return f"{verdict} {shown(N_('{what} {found}, wanted {wanted}', what=thing.what, found=found, wanted=thing.wanted))}"
    return f"{verdict} {thing.id}: {shown(thing.seen)}"
