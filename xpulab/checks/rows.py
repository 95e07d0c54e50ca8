"""One comparison and its control: the value must be accepted, and the control, which is wrong on purpose, rejected."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.compare import Finding
from xpulab.checks.ledger import ledger
from xpulab.records.known_issues import known_issue
from xpulab.records.record import Row

Comparison = Callable[[Any], Finding]
"""A value in, what was seen out."""


def close_to(expected: Any, atol: float, rtol: float, nonfinite: bool) -> Comparison:
    """compare.close with these bounds. Raises ValueError when they would ask for no difference at all."""
    if not (atol >= 0 and rtol >= 0 and 0 < atol + rtol < math.inf):
        raise ValueError("check.close needs a finite bound, atol or rtol above 0; for no difference at all use check.equal")
    return partial(compare.close, expected=expected, atol=atol, rtol=rtol, nonfinite=nonfinite)


def value_of(given: Any) -> Any:
    """A function without arguments stands for the value that it returns."""
    return given() if callable(given) and not hasattr(given, "numpy") else given


def compared(case: str, comparison: Comparison, measured: Callable[[], Any], control: Callable[[], Any]) -> Row:
    """Compare the measured value, then the control; a control that is not rejected makes the check broken."""
    try:
        seen = comparison(measured())
    except Exception as error:
        return Row(case, "broken", None, "", "not tried", f"it raised {type(error).__name__}: {compare.first_line(error)}")
    verdict, why = _try_control(comparison, control)
    if verdict == "rejected":
        return Row(case, "passed" if seen.accepted else "failed", seen.measured, seen.expected, verdict, seen.why or None)
    reason = why if seen.accepted else f"{seen.why}; and {why}"
    return Row(case, "broken", seen.measured, seen.expected, verdict, reason)


def _try_control(comparison: Comparison, control: Callable[[], Any]) -> tuple[str, str]:
    try:
        seen = comparison(control())
    except Exception as error:
        return "raised", f"its control raised {type(error).__name__}: {compare.first_line(error)}"
    if seen.accepted:
        return "accepted", "its control passes too, so this check cannot fail"
    if seen.misfit:
        return "proves nothing", f"its control is no candidate ({seen.why}), so rejecting it proves nothing"
    return "rejected", ""


def with_known_issue(row: Row, name: str, case: str | None) -> Row:
    """The row as known, or as fixed, where the check (or this row of it) is on the list of known issues."""
    issue = known_issue(name, ledger.device, case)
    if issue is None or row.outcome not in ("passed", "failed"):
        return row
    if row.outcome == "failed":
        reason = f"{issue.symptom} ({issue.reference}). Way round: {issue.workaround}"
        return Row(row.case, "known", row.measured, row.expected, row.control, reason)
    reason = f"listed as {issue.id} in data/known_issues.yaml, yet it passes: take it off the list"
    return Row(row.case, "fixed", row.measured, row.expected, row.control, reason)
