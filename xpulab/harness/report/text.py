"""The end of a run in a terminal: a line for each notebook, what is wrong with it below, and the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from xpulab.harness.judge import Verdict
from xpulab.harness.report.result import DEFECTS, PARTIAL, Result
from xpulab.records.proof import Proof
from xpulab.records.record import RED, Record

_SHOWN = RED - {"missing"} | DEFECTS - {"known"}
"""The outcomes whose checks get lines of their own; known defects have one for all, missing ones are in the reason."""


def format_result(result: Result) -> str:
    """The result of a run for a terminal."""
    if result.lost:
        missing = f"{len(result.verdicts)} notebook{'s' * (len(result.verdicts) != 1)} missing"
        return f"RED: {result.verdict}; nothing ran: {missing}\n{result.lost}"
    lines = [line for verdict in result.verdicts for line in format_notebook(verdict)]
    lines += _proof(result.proof) if result.proof else []
    if known := [record for record in result.defects if record.outcome == "known"]:
        met = "1 check" if len(known) == 1 else f"{len(known)} checks"
        lines.append(f"{met} met known defects of this release: xpulab report --known --run {result.folder}")
    verdict = "green" if result.is_green else "RED"
    if result.is_partial:
        lines.append(PARTIAL)
        verdict = f"partial, {verdict}"
    total = f"{result.green_notebooks} of {len(result.verdicts)} notebooks passed"
    checks = f"{result.compared} checks compared, {result.controls_rejected} controls rejected"
    where = f"on {result.target.device} in {result.seconds:.0f} s"
    return "\n".join([*lines, result.scope, result.verdict, f"{verdict}: {total}, {checks}, {where}"])


def format_known(checks: Iterable[Mapping[str, Any]]) -> str:
    """The checks that met a known defect, as result.json has them: what each means, and its cases or its reason."""
    lines = []
    for check in checks:
        cases = [row["case"] for row in check["rows"] if row["outcome"] == "known"]
        lines.append(f"{check['name']}: {check['means']}")
        lines.append(f"  {', '.join(cases) or check['reason']}; data/known_issues.yaml has each defect with its workaround")
    return "\n".join(lines) or "no check met a known defect"


def _proof(proof: Proof) -> Iterator[str]:
    """A line for each fault that was injected, and the outcome."""
    yield f"faults injected on {proof.node}, {proof.device}, level {proof.level}, {proof.seconds:.0f} s:"
    for each in proof.faults:
        outcome = "MISSED  " if each.missed else "detected"
        yield f"{outcome} {each.notebook}  {each.fault}: {each.what} ({', '.join(each.expected)})"
        if each.missed:
            yield f"        {each.missed}"
    yield f"        {proof.reason or f'each of {len(proof.faults)} injected faults was detected'}"


def format_notebook(verdict: Verdict) -> Iterator[str]:
    """The lines of one notebook: how it ended, why it is not green, and its red checks with what was measured."""
    compared = f"{verdict.compared} of {len(verdict.records)} checks compared"
    yield f"{verdict.outcome:<8}{verdict.name}  {compared}, {verdict.seconds:.1f} s"
    yield from (f"        {reason}" for reason in verdict.reasons)
    for known in verdict.explanations:
        yield f"        {known.where}: cause: {known.cause}"
        yield f"          fix: {known.remedy}"
    yield from (f"        note: {note}" for note in verdict.notes)
    for record in verdict.records:
        if record.outcome in _SHOWN:
            yield f"        {record.outcome} {record.name}: {record.means}"
            yield from _details(record)


def _details(record: Record) -> Iterator[str]:
    """What was measured and why it is not right; of a known defect with many cases only their names."""
    cases = [row.case for row in record.rows if row.outcome == record.outcome]
    if record.outcome in DEFECTS and cases:
        yield f"          {', '.join(cases)}; data/known_issues.yaml has each defect with its workaround"
    else:
        yield f"          measured {record.measured}, expected {record.expected or '-'}; {record.reason}"
