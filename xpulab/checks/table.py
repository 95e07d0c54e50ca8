"""Comparisons with their controls: each a check of its own, or the rows of a check that has many cases.

A value must be accepted, and its control, which is wrong on purpose, rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.compare import ComparisonResult
from xpulab.checks.digest import digest_of
from xpulab.checks.ledger import ledger
from xpulab.devices import judged_as
from xpulab.messages import N_
from xpulab.records.known_issues import KnownIssue, known_issue
from xpulab.records.record import RED, Record, Row, worst

NAMED = 3
"""So many cases with one reason are named; of more, the first and their number."""

Comparison = Callable[[Any], ComparisonResult]


class Comparisons:
    """What `check` and the rows of a table compare with.

    name: of the check "<capability>.<what>", of a row its case. control: a value that is wrong on purpose, which the same
    comparison must reject. measured and control may be functions without arguments.
    means: what it means that a check passes; a row has no such text of its own.
    """

    def _compare(self, name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
        """Compare the measured value, try the control, and keep the result."""
        raise NotImplementedError

    def close(
        self,
        name: str,
        measured: Any,
        expected: Any,
        *,
        control: Any,
        atol: float = 0.0,
        rtol: float = 0.0,
        means: str = N_("as close to the expected value as the bound asks"),
    ) -> None:
        """Every element of `measured` is within atol + rtol * |expected| of `expected`; the shapes are the same."""
        if not (atol >= 0 and rtol >= 0 and 0 < atol + rtol < math.inf):
            raise ValueError("check.close needs a finite bound, atol or rtol above 0; for exact equality use check.equal")
        self._compare(name, measured, control, means, partial(compare.close, expected=expected, atol=atol, rtol=rtol))

    def equal(
        self, name: str, measured: Any, expected: Any, *, control: Any, means: str = N_("equal to the expected value")
    ) -> None:
        """`measured` equals `expected`: numbers, strings, tensors, or lists and dicts of these; 3 equals 3.0."""
        self._compare(name, measured, control, means, partial(compare.equal, expected=expected))

    def bitwise(
        self,
        name: str,
        measured: Any,
        expected: Any,
        *,
        control: Any,
        repeat: Callable[[], Any] | None = None,
        means: str = N_("the same to the last bit"),
    ) -> None:
        """`measured` has the same bytes, type and shape as `expected`: arrays, tensors, or lists and dicts of these.

        repeat: for the results of two computations, as for compare.WithinNoise: it asks whether the device repeats itself.
        """
        exact = partial(compare.bitwise, expected=expected)
        self._compare(name, measured, control, means, compare.WithinNoise(expected, repeat) if repeat else exact)

    def below(self, name: str, measured: Any, bound: float, *, control: Any, means: str = N_("below its bound")) -> None:
        """Every element of `measured` is smaller than `bound`."""
        self._compare(name, measured, control, means, partial(compare.below, bound=float(bound)))

    def above(self, name: str, measured: Any, bound: float, *, control: Any, means: str = N_("above its bound")) -> None:
        """Every element of `measured` is larger than `bound`."""
        self._compare(name, measured, control, means, partial(compare.above, bound=float(bound)))

    def between(
        self, name: str, measured: Any, low: float, high: float, *, control: Any, means: str = N_("within its bounds")
    ) -> None:
        """Every element of `measured` is at least `low` and at most `high`."""
        self._compare(name, measured, control, means, partial(compare.between, low=float(low), high=float(high)))

    def finite(self, name: str, measured: Any, *, control: Any, means: str = N_("free of NaN and infinity")) -> None:
        """No element of `measured` is NaN or infinite."""
        self._compare(name, measured, control, means, compare.finite)

    def true(self, name: str, measured: Any, *, control: Any, means: str = N_("it holds")) -> None:
        """`measured` is True. Prefer a comparison of numbers, because it shows how large the difference is."""
        self._compare(name, measured, control, means, compare.true)


class Table(Comparisons):
    """The rows of one check, each with its own comparison and control. A method compares as check's of the same name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[Row] = []
        self._cases: set[str] = set()
        self._recorded = False

    def skip(self, case: str, reason: str) -> None:
        """This case cannot run on this device."""
        self._append(Row(case, "skipped", None, "", "not tried", reason))

    def stopped_by(self, error: BaseException) -> None:
        """Record the exception that ended the block as a broken row: no later row was compared."""
        reason = N_("{error}; no row after this one was compared", error=compare.format_error(error))
        self._rows.append(Row(f"after {len(self._rows)} rows", "broken", None, "", "not tried", reason))

    def record(self, means: str, seconds: float) -> Record:
        """All rows as one record, whose outcome is that of the worst row. No row may be added afterwards."""
        name, rows, self._recorded = self._name, tuple(self._rows), True
        if not rows:
            return Record(name, "failed", means, seconds=seconds, reason=N_("the table has no row: nothing was compared"))
        if all(row.outcome == "skipped" for row in rows):
            reason = "; ".join(reasons_of(rows))
            return Record(name, "skipped", reason, seconds=seconds, reason=reason)
        outcome, (measured, control) = worst(row.outcome for row in rows), self._counted()
        reasons = reasons_of([row for row in rows if row.outcome not in ("passed", "skipped")])
        every = N_("every row as expected")
        return Record(name, outcome, means, measured, every, control, seconds, "; ".join(reasons) or None, rows)

    def _counted(self) -> tuple[str, str]:
        """How many of the compared rows passed, and of how many the control was rejected."""
        compared = [row for row in self._rows if row.outcome != "skipped"]
        passed, rejected = (
            sum(row.outcome == "passed" for row in compared),
            sum(row.control == "rejected" for row in compared),
        )
        measured = N_("{passed} of {compared} rows", passed=passed, compared=len(compared))
        if rejected == len(compared):
            return measured, "rejected"
        return measured, N_("rejected in {rejected} of {compared}", rejected=rejected, compared=len(compared))

    def _compare(self, name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
        self._append(with_known_issue(evaluate(name, comparison, measured, control), self._name, name))

    def _append(self, row: Row) -> None:
        if self._recorded:
            raise ValueError(f"table {self._name!r} is recorded already: compare {row.case!r} inside its with block")
        if row.case in self._cases:
            raise ValueError(f"table {self._name!r} has a row {row.case!r} already")
        self._cases.add(row.case)
        self._rows.append(row)


def evaluate(case: str, comparison: Comparison, measured: Any, control: Any) -> Row:
    """Compare the measured value, then the control. A control that is not rejected makes the row broken.

    measured, control: the value, or a function without arguments that returns it; an exception in one is reported in the row.
    """
    try:
        value = _value_of(measured)
        result, digest = comparison(value), digest_of(value)
    except Exception as error:
        reason = N_("it raised {error}", error=compare.format_error(error))
        return Row(case, "broken", None, "", "not tried", reason)
    control_outcome, why = _try_control(comparison, control)
    outcome = "broken" if control_outcome != "rejected" else "passed" if result.accepted else "failed"
    whole = N_("{why}; and {why2}", why=result.why, why2=why) if result.why and why else result.why or why
    return Row(case, outcome, result.measured, result.expected, control_outcome, whole or None, digest)


def _value_of(value: Any) -> Any:
    """The value itself; for a function without arguments, the value that it returns."""
    return value() if callable(value) and not hasattr(value, "numpy") else value


def _try_control(comparison: Comparison, control: Any) -> tuple[str, str]:
    """The outcome of the control, one of CONTROL_OUTCOMES, and why it does not prove the comparison ("" when rejected)."""
    try:
        result = comparison(_value_of(control))
    except Exception as error:
        return "raised", N_("its control raised {error}", error=compare.format_error(error))
    if result.accepted:
        return "accepted", N_("its control is accepted too, so this check cannot fail")
    if result.incomparable:
        return "incomparable", N_("its control cannot be compared ({why}), so its rejection shows nothing", why=result.why)
    return "rejected", ""


def with_known_issue(row: Row, name: str, case: str | None) -> Row:
    """The row with another outcome where the check (or this case of it) is a listed known issue; else unchanged."""
    return as_listed(row, known_issue(name, ledger.device, case))


def as_listed(row: Row, issue: KnownIssue | None) -> Row:
    """The row as the issue, if there is one, makes it: known where it failed, fixed where it passed.

    Of an issue that was never seen on this device: predicted where it failed, refuted where it passed. A rehearsal refutes
    nothing, since the card's own kernels do not compute. A wrong value that the issue does not show stays as it is.
    """
    if issue is None or row.outcome not in ("passed", "failed"):
        return row
    if row.outcome == "failed" and not shows(row, issue):
        facts = {"why": row.reason, "id": issue.id, "shows": issue.shows}
        return replace(row, reason=N_("{why}; {id} in data/known_issues.yaml is another defect: it shows {shows}", **facts))
    seen = issue.is_seen(ledger.device)
    if row.outcome == "passed" and not seen:
        if judged_as(ledger.device) != ledger.device:
            return row
        reason = N_("expected on this device as {id} in data/known_issues.yaml, never seen: it did not come true", id=issue.id)
        return replace(row, outcome="refuted", reason=reason)
    if row.outcome == "passed":
        reason = N_("listed as {id} in data/known_issues.yaml, but it passes: remove it from the list", id=issue.id)
        return replace(row, outcome="fixed", reason=reason)
    defect = {"symptom": issue.symptom, "reference": issue.reference, "workaround": issue.workaround}
    if not seen:
        text = N_("expected on this device, never seen: {symptom} ({reference}). Workaround: {workaround}", **defect)
        return replace(row, outcome="predicted", reason=text)
    return replace(row, outcome="known", reason=N_("{symptom} ({reference}). Workaround: {workaround}", **defect))


def shows(row: Row, issue: KnownIssue) -> bool:
    """Whether what is wrong in the row is what the issue says."""
    return issue.shows in f"{row.measured}; {row.reason}"


def reasons_of(rows: Sequence[Row]) -> list[str]:
    """The reasons of rows, each once, after the cases that have it; those of red rows first."""
    cases: dict[str | None, list[str]] = {}
    for row in sorted(rows, key=lambda row: row.outcome not in RED):
        cases.setdefault(row.reason, []).append(row.case)
    return [f"{_format_cases(names)}: {reason}" for reason, names in cases.items()]


def _format_cases(names: Sequence[str]) -> str:
    if len(names) <= NAMED:
        return " and ".join(names)
    return N_("{names} and {names2} more", names=names[0], names2=len(names) - 1)
