"""One check of a grid: a row for each case, known defects by the values of a case, and red cases reduced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from xpulab.checks.digest import digest_of
from xpulab.checks.grid import Case, Grid
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table, as_listed, shows
from xpulab.messages import N_
from xpulab.records.known_issues import KnownIssue, known_issues_of_grid
from xpulab.records.record import RED, Record, Row

REDUCED = 3
"""So many red cases are reduced; each computes some cases again, and more of them rarely say more."""

Run = Callable[[Sequence[Case]], Sequence[Any]]
AddRow = Callable[[Table, Case, Any], None]


class GridTable(Table):
    """The rows of a check that is a grid."""

    def __init__(self, name: str, grid: Grid, run: Run, add_row: AddRow) -> None:
        super().__init__(name)
        self._grid, self._run, self._add_row = grid, run, add_row
        self._listed = known_issues_of_grid(name, ledger.device)
        self._issues: dict[str, KnownIssue] = {}
        self._showing: dict[str, KnownIssue] = {}
        self._values: dict[str, str] = {}

    def fill(self, cases: Sequence[Case]) -> None:
        """Compute the cases, and one for each known defect; compare each, and reduce those that are red."""
        for issue in self._listed:
            if case := self._grid.first_case(issue.when, cases[0].seed):
                self._showing[case.name] = issue
                cases = [*cases, *([case] if case.name not in {each.name for each in cases} else [])]
        for case, value in zip(cases, self._run(cases), strict=True):
            self._compute(case, value)
        unknown = [number for number, row in enumerate(self._rows) if row.outcome in RED and row.case not in self._issues]
        for number in unknown[:REDUCED]:
            smallest = self._grid.reduce(cases[number], self._is_red)
            code = smallest.code()
            repeat = f"{N_('smallest red case: {name}', name=smallest.name)}; {N_('to repeat it: {code}', code=code)}"
            self._rows[number] = replace(self._rows[number], reason=f"{self._rows[number].reason}; {repeat}")

    def record(self, means: str, seconds: float) -> Record:
        """As Table.record, with one row for all cases that passed alike, and one for each known defect.

        A known defect is fixed, or refuted, when the case that showed it passes; others with its values may pass anyway.
        """
        for number, row in enumerate(self._rows):
            if row.outcome == "failed" or row.case in self._showing:
                self._rows[number] = as_listed(row, self._showing.get(row.case) or self._issues.get(row.case))
        counted, (_, control) = [row.outcome for row in self._rows if row.outcome != "skipped"], self._counted()
        usual = ("passed", "known", "predicted")
        notable = [row for row in self._rows if row.outcome not in usual or row.case in self._showing]
        self._rows = [*self._passed(), *(row for row in notable if row.outcome != "passed")]
        record = super().record(means, seconds)
        if record.outcome == "skipped":
            return record
        measured = N_("{passed} of {compared} cases", passed=counted.count("passed"), compared=len(counted))
        return replace(record, measured=measured, control=control)

    def _passed(self) -> Iterator[Row]:
        """One row for all cases that passed with the same value of the grid's axis `each`."""
        together: dict[str, list[Row]] = {}
        for row in self._rows:
            if row.outcome == "passed":
                together.setdefault(self._values[row.case], []).append(row)
        for value, rows in together.items():
            digest = digest_of([[row.case, row.digest] for row in rows])
            count = f"{len(rows)} case{'s' * (len(rows) != 1)}"
            yield Row(value, "passed", count, "as the formula says", "rejected", None, digest)

    def _compute(self, case: Case, value: Any) -> None:
        self._values[case.name] = case.labels[self._grid.each]
        self._add_row(self, case, value)
        if issues := [issue for issue in self._listed if issue.concerns(case.labels)]:
            self._issues[case.name] = next((issue for issue in issues if shows(self._rows[-1], issue)), issues[0])

    def _is_red(self, case: Case) -> bool:
        """Whether the case, computed again, is red and no known defect."""
        again = GridTable(self._name, self._grid, self._run, self._add_row)
        again._compute(case, again._run([case])[0])
        return bool(again._rows) and all(row.outcome in RED and row.case not in again._issues for row in again._rows)
