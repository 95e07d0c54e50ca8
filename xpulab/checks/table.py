"""One check of many cases: one row for each case, with its own comparison and control."""

from __future__ import annotations

from functools import partial
from typing import Any

from xpulab.checks import compare
from xpulab.checks.rows import Comparison, close_to, evaluate, reasons_of, value_of, with_known_issue
from xpulab.messages import N_
from xpulab.records.record import Record, Row, worst


class Table:
    """The rows of one check. Its methods compare like the functions of the same names in check.py; `case` names the row."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[Row] = []
        self._cases: set[str] = set()
        self._recorded = False

    def close(self, case: str, measured: Any, expected: Any, *, control: Any, atol: float = 0.0, rtol: float = 0.0) -> None:
        """As check.close."""
        self._add(case, measured, control, close_to(expected, atol, rtol, nonfinite=False))

    def equal(self, case: str, measured: Any, expected: Any, *, control: Any) -> None:
        """As check.equal."""
        self._add(case, measured, control, partial(compare.equal, expected=expected))

    def bitwise(self, case: str, measured: Any, expected: Any, *, control: Any) -> None:
        """As check.bitwise."""
        self._add(case, measured, control, partial(compare.bitwise, expected=expected))

    def below(self, case: str, measured: Any, bound: float, *, control: Any) -> None:
        """As check.below."""
        self._add(case, measured, control, partial(compare.below, bound=float(bound)))

    def above(self, case: str, measured: Any, bound: float, *, control: Any) -> None:
        """As check.above."""
        self._add(case, measured, control, partial(compare.above, bound=float(bound)))

    def between(self, case: str, measured: Any, low: float, high: float, *, control: Any) -> None:
        """As check.between."""
        self._add(case, measured, control, partial(compare.between, low=float(low), high=float(high)))

    def skip(self, case: str, reason: str) -> None:
        """This case cannot run on this device."""
        self._append(Row(case, "skipped", None, "", "not tried", reason))

    def stopped_by(self, error: BaseException) -> None:
        """Record the exception that ended the block as a broken row: no later row was compared."""
        reason = N_(f"{type(error).__name__}: {compare.first_line(error)}; no row after this one was compared")
        self._rows.append(Row(f"after {len(self._rows)} rows", "broken", None, "", "not tried", reason))

    def record(self, means: str, seconds: float) -> Record:
        """All rows as one record, whose outcome is that of the worst row. No row may be added afterwards."""
        name, rows, self._recorded = self._name, tuple(self._rows), True
        if not rows:
            return Record(name, "failed", means, seconds=seconds, reason=N_("the table has no row: nothing was compared"))
        outcome = worst(row.outcome for row in rows)
        notable = [row for row in rows if row.outcome not in ("passed", "skipped")]
        reason = "; ".join(reasons_of(notable)) or None
        passed = sum(row.outcome == "passed" for row in rows)
        compared = sum(row.outcome != "skipped" for row in rows)
        if not compared:
            reason = "; ".join(reasons_of(rows))
            return Record(name, "skipped", reason, seconds=seconds, reason=reason)
        rejected = sum(row.control == "rejected" for row in rows)
        control = "rejected" if rejected == compared else N_(f"rejected in {rejected} of {compared}")
        return Record(
            name,
            outcome,
            means,
            N_(f"{passed} of {compared} rows"),
            N_("every row as expected"),
            control,
            seconds,
            reason,
            rows,
        )

    def _add(self, case: str, measured: Any, control: Any, comparison: Comparison) -> None:
        row = evaluate(case, comparison, lambda: value_of(measured), lambda: value_of(control))
        self._append(with_known_issue(row, self._name, case))

    def _append(self, row: Row) -> None:
        if self._recorded:
            raise ValueError(f"table {self._name!r} is recorded already: compare {row.case!r} inside its with block")
        if row.case in self._cases:
            raise ValueError(f"table {self._name!r} has a row {row.case!r} already")
        self._cases.add(row.case)
        self._rows.append(row)
