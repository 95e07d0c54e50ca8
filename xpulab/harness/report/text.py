"""The end of a run in a terminal: a line for each notebook, what is wrong with it below, and the verdict."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from xpulab.harness.judge import Verdict
from xpulab.harness.report.result import DEFECTS, PARTIAL, PREDICTIONS, Result
from xpulab.messages import N_, joined, labelled, padded, shown
from xpulab.records.record import RED, Record

_KNOWN = N_("data/known_issues.yaml has each defect with its workaround")
_LISTED = {"known": (), "predicted": (N_("expected on this device, never seen"),)}
"""By outcome of checks that fail because of a listed defect what is said of them first."""
_OUTCOME_COLUMNS = 8
_SHOWN = RED - {"missing"} | DEFECTS - {"known"} | PREDICTIONS
"""The outcomes whose checks get lines of their own; known defects have one for all, missing ones are in the reason."""


def format_result(result: Result) -> str:
    """The result of a run for a terminal, in the chosen language."""
    if result.lost:
        missing = len(result.verdicts)
        red = N_("RED: {verdict}; nothing ran, notebooks missing: {missing}", verdict=result.verdict, missing=missing)
        return f"{shown(red)}\n{shown(str(result.lost))}"
    lines = [line for verdict in result.verdicts for line in format_notebook(verdict)]
    if result.records(PREDICTIONS):
        counts = {outcome: result.count(outcome) for outcome in PREDICTIONS}
        lines.append(
            shown(N_("expected on this device, never seen: {predicted} checks; {refuted} did not come true", **counts))
        )
    if count := result.count("known"):
        lines.append(shown(N_("checks that met known defects of this release: {count}", count=count)))
        lines.append(shown(N_("to list them: xpulab report --known --run {folder}", folder=shlex.quote(str(result.folder)))))
    verdict = N_("green") if result.is_green else N_("no verdict") if result.no_verdict else N_("RED")
    if result.is_partial:
        lines.append(shown(PARTIAL))
        verdict = N_("partial, {verdict}", verdict=verdict)
    ended = N_(
        "{verdict}: {passed} of {notebooks} notebooks passed, {compared} checks compared, {rejected} "
        "controls rejected, on {device} in {seconds} s",
        verdict=verdict,
        passed=result.green_notebooks,
        notebooks=len(result.verdicts),
        compared=result.compared,
        rejected=result.controls_rejected,
        device=result.options.device,
        seconds=f"{result.seconds:.0f}",
    )
    why = [shown(N_("no verdict: {cause}", cause=result.no_verdict))] if result.no_verdict else []
    return "\n".join([*lines, shown(result.scope), shown(result.verdict), *why, shown(ended)])


def format_known(checks: Iterable[Mapping[str, Any]]) -> str:
    """Of checks, as result.json has them, those that met a known defect or one that is expected on this device, never seen.

    A line for what each means, and one for its outcome, with its cases or its reason.
    """
    lines = []
    for check, outcome in product(checks, _LISTED):
        cases = [row["case"] for row in check["rows"] if row["outcome"] == outcome]
        if cases or check["outcome"] == outcome:
            lines.append(f"{check['name']}: {shown(check['means'])}")
            texts = [*map(shown, _LISTED[outcome]), ", ".join(cases) or shown(check["reason"]), shown(_KNOWN)]
            lines.append(f"  {joined(texts)}")
    return "\n".join(lines) or shown("no check met a known defect")


def format_notebook(verdict: Verdict) -> Iterator[str]:
    """In the chosen language the lines of one notebook: how it ended, why it is not green, what red checks measured."""
    facts = {"compared": verdict.compared, "records": len(verdict.records), "seconds": f"{verdict.seconds:.1f}"}
    compared = shown(N_("{compared} of {records} checks compared, {seconds} s", **facts))
    yield f"{padded(shown(verdict.outcome), _OUTCOME_COLUMNS)}{verdict.name}  {compared}"
    yield from (f"        {shown(reason)}" for reason in verdict.reasons)
    for known in verdict.explanations:
        yield f"        {shown(known.where)}: {labelled('cause: ', known.cause)}"
        yield f"          {labelled('fix: ', known.remedy)}"
    for record in verdict.records:
        if record.outcome in _SHOWN:
            yield f"        {shown(record.outcome)} {record.name}: {shown(record.means)}"
            yield from _details(record)


def _details(record: Record) -> Iterator[str]:
    """What was measured and why it is not right; of a known defect with many cases only their names."""
    cases = [row.case for row in record.rows if row.outcome == record.outcome]
    if record.outcome in DEFECTS | PREDICTIONS and cases:
        yield f"          {joined([', '.join(cases), shown(_KNOWN)])}"
    else:
        compared = shown(
            N_("measured {measured}, expected {expected}", measured=record.measured, expected=record.expected or "-")
        )
        yield f"          {joined([compared, shown(record.reason)] if record.reason else [compared])}"
