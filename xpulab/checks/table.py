"""One check of many cases: one row for each case, with its own comparison and control."""

from __future__ import annotations

from typing import Any

from xpulab.checks import compare
from xpulab.checks.comparisons import Comparisons
from xpulab.checks.rows import Comparison, evaluate, reasons_of, with_known_issue
from xpulab.messages import N_
from xpulab.records.record import Record, Row, worst


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
        reason = N_(
            "{name}: {error}; no row after this one was compared", name=type(error).__name__, error=compare.first_line(error)
        )
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
        control = (
            "rejected"
            if rejected == compared
            else N_("rejected in {rejected} of {compared}", rejected=rejected, compared=compared)
        )
        return Record(
            name,
            outcome,
            means,
            N_("{passed} of {compared} rows", passed=passed, compared=compared),
            N_("every row as expected"),
            control,
            seconds,
            reason,
            rows,
        )

    def _compare(self, name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
        self._append(with_known_issue(evaluate(name, comparison, measured, control), self._name, name))

    def _append(self, row: Row) -> None:
        if self._recorded:
            raise ValueError(f"table {self._name!r} is recorded already: compare {row.case!r} inside its with block")
        if row.case in self._cases:
            raise ValueError(f"table {self._name!r} has a row {row.case!r} already")
        self._cases.add(row.case)
        self._rows.append(row)
