"""One check of a grid: a row for each case, known defects by the values of a case, and red cases reduced."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
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

SECONDS = {"smoke": 0.0, "quick": 0.7, "standard": math.inf}
"""By level how many seconds of the processor the further cases of a grid may take."""

_AT_ONCE = 16
"""Further cases between two looks at the clock; their arrays are kept at the same time."""

Run = Callable[[Sequence[Case]], Sequence[Any]]
AddRow = Callable[[Table, Case, Any], None]


FURTHER = "further values"
"""The row of all further cases that passed."""


def labels_as_listed(grid: Grid, case: Case, issue: KnownIssue) -> dict[str, str]:
    """The labels of a case, with a further value as one that is listed: a defect of some sizes may be one of others.

    One that is listed for further values alone is one of these.
    """
    owned = {axis: [label for label in of if label in grid.axes.get(axis, ())] for axis, of in issue.when.items()}
    listed = {axis: of[0] for axis, of in owned.items() if of and case.labels[axis] not in grid.axes[axis]}
    return {**case.labels, **listed}


class GridTable(Table):
    """The rows of a check that is a grid."""

    def __init__(self, name: str, grid: Grid, run: Run, add_row: AddRow) -> None:
        super().__init__(name)
        self._grid, self._run, self._add_row = grid, run, add_row
        self._listed = known_issues_of_grid(name, ledger.device)
        self._issues: dict[str, KnownIssue] = {}
        self._showing: dict[str, KnownIssue] = {}
        self._values: dict[str, str] = {}
        self._cases_of: dict[str, Case] = {}
        self._further: list[Row] = []

    def fill(self, cases: Sequence[Case]) -> None:
        """Compute the cases, and one for each known defect; compare each, and reduce those that are red."""
        for issue in self._listed:
            if case := self._grid.wide.first_case(issue.when, cases[0].seed):
                self._showing[case.name] = issue
                cases = [*cases, *([case] if case.name not in {each.name for each in cases} else [])]
        for case, value in zip(cases, self._run(cases), strict=True):
            self._compute(case, value)
        self._reduce_red()

    def fill_further(self, level: str, seed: int) -> None:
        """Compute the grid's further cases as long as the level allows, and reduce those that are red."""
        own, end = len(self._rows), time.process_time() + SECONDS[level]
        every = self._grid.further_cases(seed) if SECONDS[level] else ()
        cases = (case for case in every if case.name not in self._cases)
        while some := list(islice(cases, _AT_ONCE)):
            for case, value in zip(some, self._run(some), strict=True):
                self._compute(case, value)
            if time.process_time() > end:
                break
        self._reduce_red(own)
        self._rows, self._further = self._rows[:own], self._rows[own:]

    def _reduce_red(self, first: int = 0) -> None:
        """Say of some red rows from this one on what the smallest case is that is red, and how it is repeated."""
        rows = list(enumerate(self._rows))[first:]
        unknown = [number for number, row in rows if row.outcome in RED and row.case not in self._issues]
        for number in unknown[:REDUCED]:
            smallest = self._grid.wide.reduce(self._cases_of[self._rows[number].case], self._is_red)
            code = smallest.code()
            repeat = f"{N_('smallest red case: {name}', name=smallest.name)}; {N_('to repeat it: {code}', code=code)}"
            self._rows[number] = replace(self._rows[number], reason=f"{self._rows[number].reason}; {repeat}")

    def record(self, means: str, seconds: float) -> Record:
        """As Table.record, with one row for all cases that passed alike, and one for each known defect.

        A known defect is fixed, or refuted, when the case that showed it passes; others with its values may pass anyway.
        How many further cases were computed depends on the machine: it is in `expected`, and no two runs are compared by it.
        """
        for number, row in enumerate(self._rows):
            if row.outcome == "failed" or row.case in self._showing:
                self._rows[number] = as_listed(row, self._showing.get(row.case) or self._issues.get(row.case))
        listed = [as_listed(row, self._issues.get(row.case)) for row in self._further if row.outcome in RED]
        self._rows += [row for row in listed if row.outcome in RED]
        counted, (_, control) = [row.outcome for row in self._rows if row.outcome != "skipped"], self._counted()
        usual = ("passed", "known", "predicted")
        notable = [row for row in self._rows if row.outcome not in usual or row.case in self._showing]
        self._rows = [*self._passed(), *(row for row in notable if row.outcome != "passed")]
        if any(row.outcome == "passed" for row in self._further):  # of its number no digest is made
            self._rows.append(Row(FURTHER, "passed", "every one", "as the formula says", "rejected"))
        record = super().record(means, seconds)
        if record.outcome == "skipped":
            return record
        measured = N_("{passed} of {compared} cases", passed=counted.count("passed"), compared=len(counted))
        further = {"computed": len(self._further), "most": self._grid.most_further()}
        expected = N_("every row as expected; {computed} of {most} further cases, or fewer, were computed", **further)
        return replace(record, measured=measured, control=control, expected=expected if self._further else record.expected)

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
        self._values[case.name], self._cases_of[case.name] = case.labels[self._grid.each], case
        self._add_row(self, case, value)
        if issues := [issue for issue in self._listed if issue.concerns(labels_as_listed(self._grid, case, issue))]:
            self._issues[case.name] = next((issue for issue in issues if shows(self._rows[-1], issue)), issues[0])

    def _is_red(self, case: Case) -> bool:
        """Whether the case, computed again, is red and no known defect."""
        again = GridTable(self._name, self._grid, self._run, self._add_row)
        again._compute(case, again._run([case])[0])
        return bool(again._rows) and all(row.outcome in RED and row.case not in again._issues for row in again._rows)
