"""One comparison with its control: the value must be accepted, and the control, which is wrong on purpose, rejected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from xpulab.checks import compare
from xpulab.checks.compare import Finding
from xpulab.checks.digest import digest_of
from xpulab.checks.ledger import ledger
from xpulab.messages import N_
from xpulab.records.known_issues import KnownIssue, known_issue
from xpulab.records.record import RED, Row

NAMED = 3
"""So many cases with one reason are named; of more, the first and their number."""

Comparison = Callable[[Any], Finding]
"""Takes a value, returns the finding about it."""


def evaluate(case: str, comparison: Comparison, measured: Any, control: Any) -> Row:
    """Compare the measured value, then the control. A control that is not rejected makes the row broken.

    measured, control: the value, or a function without arguments that returns it; an exception in one is reported in the row.
    """
    try:
        value = _value_of(measured)
        finding, digest = comparison(value), digest_of(value)
    except Exception as error:
        return Row(
            case,
            "broken",
            None,
            "",
            "not tried",
            N_("it raised {name}: {error}", name=type(error).__name__, error=compare.first_line(error)),
        )
    control_outcome, why = _try_control(comparison, control)
    if control_outcome == "rejected":
        outcome, reason = "passed" if finding.accepted else "failed", finding.why or None
    else:
        outcome, reason = "broken", why if finding.accepted else N_("{why}; and {why2}", why=finding.why, why2=why)
    return Row(case, outcome, finding.measured, finding.expected, control_outcome, reason, digest)


def _value_of(value: Any) -> Any:
    """The value itself; for a function without arguments, the value that it returns."""
    return value() if callable(value) and not hasattr(value, "numpy") else value


def _try_control(comparison: Comparison, control: Any) -> tuple[str, str]:
    """The outcome of the control, one of CONTROL_OUTCOMES, and why it does not prove the comparison ("" when rejected)."""
    try:
        finding = comparison(_value_of(control))
    except Exception as error:
        return "raised", N_("its control raised {name}: {error}", name=type(error).__name__, error=compare.first_line(error))
    if finding.accepted:
        return "accepted", N_("its control is accepted too, so this check cannot fail")
    if finding.incomparable:
        return "incomparable", N_("its control cannot be compared ({why}), so its rejection shows nothing", why=finding.why)
    return "rejected", ""


def with_known_issue(row: Row, name: str, case: str | None) -> Row:
    """The row with outcome known or fixed where the check (or this case of it) is a listed known issue; else unchanged."""
    return known_or_fixed(row, known_issue(name, ledger.device, case))


def known_or_fixed(row: Row, issue: KnownIssue | None) -> Row:
    """The row as the issue, if there is one, makes it: known where it failed, fixed where it passed."""
    if issue is None or row.outcome not in ("passed", "failed"):
        return row
    if row.outcome == "failed":
        reason = N_(
            "{symptom} ({reference}). Workaround: {workaround}",
            symptom=issue.symptom,
            reference=issue.reference,
            workaround=issue.workaround,
        )
        return replace(row, outcome="known", reason=reason)
    reason = N_("listed as {id} in data/known_issues.yaml, but it passes: remove it from the list", id=issue.id)
    return replace(row, outcome="fixed", reason=reason)


def reasons_of(rows: Sequence[Row]) -> list[str]:
    """The reasons of rows, each once, after the cases that have it; those of red rows first."""
    cases: dict[str | None, list[str]] = {}
    for row in sorted(rows, key=lambda row: row.outcome not in RED):
        cases.setdefault(row.reason, []).append(row.case)
    return [f"{_format_cases(names)}: {reason}" for reason, names in cases.items()]


def _format_cases(names: Sequence[str]) -> str:
    return (
        " and ".join(names) if len(names) <= NAMED else N_("{names} and {names2} more", names=names[0], names2=len(names) - 1)
    )
