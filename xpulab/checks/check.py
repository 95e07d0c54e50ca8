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
from xpulab.checks.rows import Comparison, close_to, evaluate, value_of, with_known_issue
from xpulab.checks.shown import show
from xpulab.checks.table import Table
from xpulab.messages import N_
from xpulab.records.record import Record, Row

Rows = TypeVar("Rows", bound=Table)


def close(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    atol: float = 0.0,
    rtol: float = 0.0,
    means: str = N_("as close to the expected value as the bound asks"),
    about_nonfinite: bool = False,
) -> None:
    """Every element of `measured` is within atol + rtol * |expected| of `expected`; the shapes are the same.

    about_nonfinite: the check is about NaN and infinity; they must be in the same places on both sides.
    """
    _record(name, measured, control, means, close_to(expected, atol, rtol, about_nonfinite))


def equal(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    means: str = N_("equal to the expected value"),
    about_nonfinite: bool = False,
) -> None:
    """`measured` equals `expected`: numbers, strings, tensors, or lists and dicts of these; 3 equals 3.0."""
    _record(name, measured, control, means, partial(compare.equal, expected=expected, nonfinite=about_nonfinite))


def bitwise(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    means: str = N_("the same to the last bit"),
    about_nonfinite: bool = False,
) -> None:
    """`measured` has the same bytes, type and shape as `expected`: arrays, tensors, or lists and dicts of these."""
    _record(name, measured, control, means, partial(compare.bitwise, expected=expected, nonfinite=about_nonfinite))


def below(name: str, measured: Any, bound: float, *, control: Any, means: str = N_("below its bound")) -> None:
    """Every element of `measured` is smaller than `bound`."""
    _record(name, measured, control, means, partial(compare.below, bound=float(bound)))


def above(name: str, measured: Any, bound: float, *, control: Any, means: str = N_("above its bound")) -> None:
    """Every element of `measured` is larger than `bound`."""
    _record(name, measured, control, means, partial(compare.above, bound=float(bound)))


def between(name: str, measured: Any, low: float, high: float, *, control: Any, means: str = N_("within its bounds")) -> None:
    """Every element of `measured` is at least `low` and at most `high`."""
    _record(name, measured, control, means, partial(compare.between, low=float(low), high=float(high)))


def finite(name: str, measured: Any, *, control: Any, means: str = N_("free of NaN and infinity")) -> None:
    """No element of `measured` is NaN or infinite."""
    _record(name, measured, control, means, compare.finite)


def true(name: str, measured: Any, *, control: Any, means: str = N_("it holds")) -> None:
    """`measured` is True. Prefer a check that compares numbers, because it shows how large the difference is."""
    _record(name, measured, control, means, compare.true)


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
    started = time.perf_counter()
    row = evaluate("", partial(compare.raises, kind=kind, match=match), lambda: call, lambda: control)
    show(_to_record(name, means, with_known_issue(row, name, None), time.perf_counter() - started))


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


@contextmanager
def _recorded(rows: Rows, means: str) -> Iterator[Rows]:
    """Yield the table to be filled; then show its record, also when an exception ended the block."""
    started = time.perf_counter()
    try:
        yield rows
    except Exception as error:
        rows.stopped_by(error)
    show(rows.record(means, time.perf_counter() - started))


# ----------------------------------------------------------------------------------------------------- making the record


def _record(name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
    started = time.perf_counter()
    row = evaluate("", comparison, lambda: value_of(measured), lambda: value_of(control))
    show(_to_record(name, means, with_known_issue(row, name, None), time.perf_counter() - started))


def _to_record(name: str, means: str, row: Row, seconds: float) -> Record:
    return Record(name, row.outcome, means, row.measured, row.expected, row.control, seconds, row.reason, digest=row.digest)
