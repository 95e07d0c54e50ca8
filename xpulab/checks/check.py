"""State an expectation, try its control, record what was seen.

    check.close("lora.merge", merged, adapter_logits, atol=1e-4, control=base_logits,
                means="merged weights answer like base and adapter")

The control is a value that is wrong on purpose: the same comparison must reject it. A check whose control is accepted,
or is no candidate at all (another shape, empty, NaN), cannot fail, and is reported as broken. A value or control may be
given as a function without arguments; an exception in it is reported, not raised, and the notebook goes on.

What is printed is one line, the same on every machine; the numbers go into that output's metadata as an xpulab.records.record.
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from xpulab.checks import compare
from xpulab.checks.ledger import ledger
from xpulab.checks.measured import Measured
from xpulab.checks.rows import Comparison, close_to, compared, value_of, with_known_issue
from xpulab.checks.table import Table
from xpulab.records.record import RED, Record, Row

Rows = TypeVar("Rows", bound=Table)


def close(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    atol: float = 0.0,
    rtol: float = 0.0,
    means: str = "as close to the expected value as the bound asks",
    about_nonfinite: bool = False,
) -> None:
    """Every element of `measured` is within atol + rtol * |expected| of `expected`; the shapes are the same.

    about_nonfinite: NaN and infinity are what the check is about: they must stand in the same places on both sides.
    """
    _record(name, measured, control, means, close_to(expected, atol, rtol, about_nonfinite))


def equal(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    means: str = "equal to the expected value",
    about_nonfinite: bool = False,
) -> None:
    """`measured` has the values of `expected`: numbers, texts, tensors, or lists and dicts of these."""
    _record(name, measured, control, means, partial(compare.equal, expected=expected, nonfinite=about_nonfinite))


def bitwise(
    name: str,
    measured: Any,
    expected: Any,
    *,
    control: Any,
    means: str = "the same to the last bit",
    about_nonfinite: bool = False,
) -> None:
    """`measured` has the bytes, type and shape of `expected`: arrays, tensors, or lists and dicts of these."""
    _record(name, measured, control, means, partial(compare.bitwise, expected=expected, nonfinite=about_nonfinite))


def below(name: str, measured: Any, bound: float, *, control: Any, means: str = "below its bound") -> None:
    """Every element of `measured` is smaller than `bound`."""
    _record(name, measured, control, means, partial(compare.below, bound=float(bound)))


def above(name: str, measured: Any, bound: float, *, control: Any, means: str = "above its bound") -> None:
    """Every element of `measured` is larger than `bound`."""
    _record(name, measured, control, means, partial(compare.above, bound=float(bound)))


def between(name: str, measured: Any, low: float, high: float, *, control: Any, means: str = "within its bounds") -> None:
    """Every element of `measured` is at least `low` and at most `high`."""
    _record(name, measured, control, means, partial(compare.between, low=float(low), high=float(high)))


def finite(name: str, measured: Any, *, control: Any, means: str = "free of NaN and infinity") -> None:
    """No element of `measured` is NaN or infinite."""
    _record(name, measured, control, means, compare.finite)


def true(name: str, measured: Any, *, control: Any, means: str = "it holds") -> None:
    """`measured` is True. Prefer a check that compares numbers: it can say how far off they are."""
    _record(name, measured, control, means, compare.true)


def raises(
    name: str,
    kind: type[BaseException],
    call: Callable[[], Any],
    *,
    control: Callable[[], Any],
    match: str = "",
    means: str = "refused with an error",
) -> None:
    """Calling `call` raises `kind` with a text that `match` (a regular expression) finds; calling `control` does not."""
    started = time.perf_counter()
    row = compared("", partial(compare.raises, kind=kind, match=match), lambda: call, lambda: control)
    _show(_as_record(name, means, with_known_issue(row, name, None), time.perf_counter() - started))


def skip(name: str, reason: str) -> None:
    """The check cannot be made here. The reason must read the same on every machine of this device."""
    _show(Record(name=name, outcome="skipped", means=reason, reason=reason))


@contextmanager
def table(name: str, *, means: str) -> Iterator[Table]:
    """One check over many cases, each a row with a comparison and a control of its own.

        with check.table("numerics.sum", means="sums agree with double precision") as rows:
            for dtype in dtypes:
                rows.close(dtype, measured[dtype], expected, atol=..., control=...)

    No rows at all is a failure. An exception inside the block is recorded as a broken row, and the notebook goes on.
    """
    with _recorded(Table(name), means) as rows:
        yield rows


@contextmanager
def baseline(name: str, *, level: str, conditions: Mapping[str, Any], means: str) -> Iterator[Measured]:
    """One check of what depends on the device, losses, rates and memory, each a row against what it measured before.

        with check.baseline("sft.baseline", level=level, conditions={"seed": seed}, means="losses as before") as rows:
            rows.losses("training", losses, control=slower)

    conditions: what must be the same for two measurements to be compared, besides hardware, wheel and level. Rows for which
    there is no reference are skipped, so its text differs between machines: tag its cell nbval-ignore-output.
    """
    with _recorded(Measured(name, level, conditions), means) as rows:
        yield rows


@contextmanager
def _recorded(rows: Rows, means: str) -> Iterator[Rows]:
    """The table while it is filled; then its record, whatever ended the block."""
    started = time.perf_counter()
    try:
        yield rows
    except Exception as error:
        rows.stopped_by(error)
    _show(rows.record(means, time.perf_counter() - started))


# -------------------------------------------------------------------------------------------------- how a check is made


def _record(name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
    started = time.perf_counter()
    row = compared("", comparison, lambda: value_of(measured), lambda: value_of(control))
    _show(_as_record(name, means, with_known_issue(row, name, None), time.perf_counter() - started))


def _as_record(name: str, means: str, row: Row, seconds: float) -> Record:
    return Record(name, row.outcome, means, row.measured, row.expected, row.control, seconds, row.reason)


# ------------------------------------------------------------------------------------------------- what the reader sees


def _show(record: Record) -> None:
    """Keep the record, and print its line with the record in the output's metadata."""
    from IPython.display import display

    ledger.keep(record)
    line = f"{record.outcome:<8}{record.name}  {record.means}"
    data = {"text/plain": line}
    if record.outcome in RED:
        detail = "\n".join([line, *_details(record)])
        data = {"text/plain": detail, "text/html": f'<pre style="color:#b00020">{html.escape(detail)}</pre>'}
    display(data, raw=True, metadata=record.to_metadata())


def _details(record: Record) -> list[str]:
    if record.rows:
        return [_detail(row.case, row) for row in record.rows if row.outcome in RED]
    return [_detail("", record)]


def _detail(case: str, seen: Row | Record) -> str:
    parts = [f"measured {_in_words(seen.measured)}", f"expected {seen.expected or '-'}", f"control {seen.control}"]
    return f"        {case + ': ' if case else ''}{', '.join(parts)}\n        {seen.reason}"


def _in_words(measured: float | str | None) -> str:
    if isinstance(measured, float):
        return f"{measured:.6g}"
    return "nothing" if measured is None else str(measured)
