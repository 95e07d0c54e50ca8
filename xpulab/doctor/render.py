"""Formats findings as plain text: the outcome, then the problems with their remedies, then everything else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xpulab.doctor.diagnosis import Diagnosis
from xpulab.doctor.finding import Finding, format_verdict
from xpulab.doctor.host import HostReport
from xpulab.doctor.known_errors import ReadLog
from xpulab.doctor.remedies import remedy_on
from xpulab.doctor.versions import VersionRow
from xpulab.messages import N_, labelled, shown

_SHOWN_CHARACTERS = 300
"""Of a line of a log."""


def format_diagnosis(diagnosis: Diagnosis) -> str:
    """Several lines without colours, in the chosen language."""
    problems = [thing for thing in diagnosis.things if thing.verdict != "ok"]
    headline = N_(
        "{outcome}: {problems} of {things} findings are not ok on device {device}",
        outcome=diagnosis.outcome,
        problems=len(problems),
        things=len(diagnosis.things),
        device=diagnosis.device,
    )
    looked_for = ["\n" + shown("looked for:"), *(f"  {shown(line)}" for line in diagnosis.detection.looked_for)]
    right = [thing for thing in diagnosis.things if thing.verdict == "ok"]
    raw = [
        f"\n{shown(N_('{tool} printed:', tool=reading.tool))}\n{reading.raw.rstrip()}"
        for reading in (diagnosis.detection.xpu_smi, diagnosis.detection.nvml)
        if reading.raw
    ]
    return "\n".join([shown(headline), *_with_remedies(problems), *looked_for, *_headed(shown("ok:"), right), *raw])


def format_host(report: HostReport) -> str:
    """The same of `xpulab host`; what could not be read is no problem."""
    problems = [finding for finding in report.findings if finding.verdict in ("wrong", "warn")]
    headline = N_(
        "{outcome}: {problems} of {findings} findings about host {node}, boot {boot}, are not ok",
        outcome=report.outcome,
        problems=len(problems),
        findings=len(report.findings),
        node=report.node,
        boot=report.boot or "unknown",
    )
    others = [finding for finding in report.findings if finding not in problems]
    return "\n".join([shown(headline), *_with_remedies(problems), *_headed(shown("ok, or not known:"), others)])


def format_log(log: ReadLog, device: str) -> str:
    """What is known of the errors in a log, with the commands for the device; the first is often the cause of the others."""
    if not log.errors:
        none = N_("no known error in {name}; the last line that looks like one:\n  {last}", name=log.name, last=log.last)
        return shown(none if log.last else N_("no known error in {name}, and no line that looks like one", name=log.name))
    lines = []
    for line, text, row in log.errors:
        lines += [f"{log.name} line {line}: {row.id}", f"{'':9}{text[:_SHOWN_CHARACTERS]}"]
        parts = (("cause: ", row.cause), ("fix: ", remedy_on(row, device)), ("page: ", row.page))
        lines += [f"{'':9}{labelled(label, part)}" for label, part in parts]
    return "\n".join(lines)


def _headed(heading: str, things: Sequence[Finding | VersionRow]) -> list[str]:
    return ["\n" + heading, *(f"  {_line(thing)}" for thing in things)]


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
