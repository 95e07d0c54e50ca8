"""Compare a measured value with what is expected, try the control, and record the result.

    check.close("lora.merge", merged, adapter_logits, atol=1e-4, control=base_logits,
                means="merged weights answer like base and adapter")

The control is a value that is wrong on purpose: the same comparison must reject it. A check whose control is accepted, or
is incomparable (another shape, empty, NaN), is reported as broken, because it shows nothing. A value or a control may be a
function without arguments. An exception in it is reported and not raised, so that the notebook continues.

A check prints one line, the same on every machine. The numbers are in that output's metadata, as xpulab.records.record.Record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from xpulab.checks import compare
from xpulab.checks.baseline_table import BaselineTable
from xpulab.checks.grid import Case, Grid
from xpulab.checks.grid_table import GridTable
from xpulab.checks.ledger import ledger as ledger  # check.ledger holds what was recorded
from xpulab.checks.shown import show
from xpulab.checks.table import Comparison, Comparisons, Table, evaluate, with_known_issue
from xpulab.messages import N_
from xpulab.records.record import Record

Rows = TypeVar("Rows", bound=Table)


class _Checks(Comparisons):
    """Each comparison is a check of its own."""

    def _compare(self, name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
        started = time.perf_counter()
        row = with_known_issue(evaluate("", comparison, measured, control), name, None)
        seconds = time.perf_counter() - started
        show(Record(name, row.outcome, means, row.measured, row.expected, row.control, seconds, row.reason, digest=row.digest))


_checks = _Checks()
close, equal, bitwise = _checks.close, _checks.equal, _checks.bitwise
below, above, between = _checks.below, _checks.above, _checks.between
finite, true = _checks.finite, _checks.true


def raises(
    name: str,
    kind: type[BaseException],
    call: Callable[[], Any],
    *,
    control: Callable[[], Any],
    match: str = "",
    means: str = N_("refused with an error"),
) -> None:
    """`call` raises `kind` with a text in which the regular expression `match` is found; `control` does not."""
    comparison = partial(compare.raises, kind=kind, match=match)
    _checks._compare(name, lambda: call, lambda: control, means, comparison)  # it is the function itself that is compared


def skip(name: str, reason: str) -> None:
    """The check cannot run on this device. `reason` must be the same text on every machine with this device."""
    show(Record(name=name, outcome="skipped", means=reason, reason=reason))


@contextmanager
def table(name: str, *, means: str) -> Iterator[Table]:
    """One check of many cases: each row has its own comparison and control.

        with check.table("numerics.sum", means="sums agree with double precision") as rows:
            for dtype in dtypes:
                rows.close(dtype, measured[dtype], expected, atol=..., control=...)

    A table without rows fails. An exception inside the block is recorded as a broken row, and the notebook continues.
    """
    with _recorded(Table(name), means) as rows:
        yield rows


@contextmanager
def baseline(name: str, *, level: str, conditions: Mapping[str, Any], means: str) -> Iterator[BaselineTable]:
    """One check of losses, rates and memory: each row is compared with the baseline of this device.

        with check.baseline("sft.baseline", level=level, conditions={"seed": seed}, means="losses as before") as rows:
            rows.losses("training", losses, control=slower)

    level: the level at which the notebook runs; it must be that of the baseline.
    conditions: what else must be equal for two measurements to be comparable, besides hardware, wheel and level.

    Rows without a baseline are skipped, so the printed text differs between machines: tag the cell nbval-ignore-output.
    """
    with _recorded(BaselineTable(name, level, conditions), means) as rows:
        yield rows


def grid(
    name: str,
    grid: Grid,
    run: Callable[[Sequence[Case]], Sequence[Any]],
    add_row: Callable[[Table, Case, Any], None],
    *,
    level: str,
    seed: int,
    means: str,
) -> None:
    """One check of a grid's cases at this level; a red case is reduced to the values that matter, and its code is printed.

    run: takes cases, returns for each what was measured, in one process or in one start of ranks. An exception in it ends the
    check; one that belongs to a case is returned as that case's value, as grid.one_by_one does.
    add_row: adds one row, named case.name, for a case and its value.
    """
    rows = GridTable(name, grid, run, add_row)
    with _recorded(rows, means):
        rows.fill(grid.cases(level, seed))
        rows.fill_further(level, seed)


@contextmanager
def _recorded(rows: Rows, means: str) -> Iterator[Rows]:
    """Yield the table to be filled; then show its record, also when an exception ended the block."""
    started = time.perf_counter()
    try:
        yield rows
    except Exception as error:
        rows.stopped_by(error)
    show(rows.record(means, time.perf_counter() - started))
