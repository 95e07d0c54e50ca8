"""The grids that are searched: those of chapters 17 and 18, with the values of interesting.py besides their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np

from xpulab.chapters.numerics import accumulators, cast_grid, layer_grids, operator_grids, option_grids, order_grid
from xpulab.chapters.shared import kept_bits, precision
from xpulab.chapters.tensors import index_grids, moving_grid, writing_grid
from xpulab.checks.grid import Case, Grid
from xpulab.checks.grid_table import AddRow, Run, labels_as_listed
from xpulab.checks.ledger import ledger
from xpulab.checks.table import Table, shows
from xpulab.records.known_issues import KnownIssue, known_issues_of_grid
from xpulab.records.record import Row


@dataclass(frozen=True)
class Searched:
    """A grid that is searched.

    check: its name. own: the grid of the chapter. run, add_row: as check.grid takes them.
    operators: the values of the axis `each` that are asked for.
    """

    check: str
    own: Grid
    run: Run
    add_row: AddRow
    operators: tuple[str, ...]

    @property
    def grid(self) -> Grid:
        """The chapter's grid with its further values."""
        return self.own.wide

    def row(self, case: Case) -> Row:
        """The case computed now, as a row of the check; one that shows a listed defect is "known"."""
        rows = Table(self.check)
        self.add_row(rows, case, self.run([case])[0])
        (row,) = rows.record("", 0.0).rows or [Row(case.name, "skipped", None, "", "not tried")]
        if row.outcome == "failed" and (issue := next(self._explaining(case, row), None)):
            return replace(row, outcome="known", reason=issue.id)
        return row

    def draw(self, rng: np.random.Generator, seed: int) -> Case | None:
        """A random case of these operators; None when the rules excluded what was drawn."""
        return self.grid.any_case(rng, self.operators, seed)

    def _explaining(self, case: Case, row: Row) -> Iterator[KnownIssue]:
        """The listed defects that may be what the row shows: a value that only the search has is like any that is listed."""
        for issue in known_issues_of_grid(self.check, ledger.device):
            if issue.concerns(labels_as_listed(self.own, case, issue)) and shows(row, issue):
                yield issue


def searched(device: str, pattern: str) -> list[Searched]:
    """The grids on this device, the one in use, with the operators whose name, or check, the pattern matches."""
    types = precision.supported_types(device)
    found = []
    for check, (own, (run, add_row)) in _grids(device, types).items():
        names = tuple(name for name in own.axes[own.each] if fnmatchcase(name, pattern) or fnmatchcase(check, pattern))
        if names:
            found.append(Searched(check, own, run, add_row, names))
    return found


def _grids(device: str, types: list[str]) -> dict[str, tuple[Grid, tuple[Run, AddRow]]]:
    """By check the grid, and what runs it."""
    kept, parts = kept_bits.bits_of_products(device), accumulators.bits_of_parts(device)
    return {
        "numerics.functions": (operator_grids.functions(types), operator_grids.RUN_FUNCTIONS),
        "numerics.arithmetic": (operator_grids.arithmetic(types), operator_grids.RUN_ARITHMETIC),
        "numerics.reductions": (operator_grids.reductions(types), operator_grids.RUN_ALONG),
        "numerics.softmax": (operator_grids.along_an_axis(types), operator_grids.RUN_ALONG),
        "numerics.orders": (order_grid.orders(types), order_grid.RUN),
        "numerics.casts": (cast_grid.CASTS, cast_grid.RUN),
        "numerics.products": (layer_grids.products(types), layer_grids.run_products(kept, parts)),
        "numerics.norms": (layer_grids.norms(types), layer_grids.RUN_NORMS),
        "numerics.cross-entropy": (layer_grids.losses(types), layer_grids.RUN_LOSSES),
        "operators.attention": (layer_grids.attention(types), layer_grids.run_attention(kept)),
        "operators.rotary": (layer_grids.rotary(types), layer_grids.RUN_ROTARY),
        "numerics.options": (option_grids.options(types), option_grids.RUN),
        "random.dropout": (layer_grids.dropout(types), layer_grids.RUN_DROPOUT),
        "indexing.get": (index_grids.reading(), index_grids.RUN),
        "indexing.set": (index_grids.writing(device), index_grids.RUN),
        "indexing.moves": (moving_grid.moves(), moving_grid.RUN),
        "indexing.selections": (moving_grid.selections(), moving_grid.RUN),
        "indexing.writes": (writing_grid.writes(device, types), writing_grid.RUN),
    }
