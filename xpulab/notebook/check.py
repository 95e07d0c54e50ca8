"""State an expectation, try its control, record what was seen.

    check.close("lora.merge", merged, adapter_logits, atol=1e-4, control=base_logits,
                means="merged weights answer like base and adapter")

The control is a value that is wrong on purpose: the same comparison must reject it. A check whose control is accepted,
or is no candidate at all (another shape, empty, NaN), cannot fail, and is reported as broken. A value or control may be
given as a function without arguments; an exception in it is reported, not raised, and the notebook goes on.

What is printed is one line, the same on every machine; the numbers go into that output's metadata as an xpulab.record.
"""

from __future__ import annotations

import html
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from xpulab.known_issues import known_issue
from xpulab.notebook import compare
from xpulab.notebook.compare import Finding
from xpulab.record import RED, Record, Row, worse, worst

Comparison = Callable[[Any], Finding]


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
    _record(name, measured, control, means, _close(expected, atol, rtol, about_nonfinite))


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
    row = _row("", partial(compare.raises, kind=kind, match=match), lambda: call, lambda: control)
    _show(_as_record(name, means, _with_known_issue(row, name, None), time.perf_counter() - started))


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
    rows = Table(name)
    started = time.perf_counter()
    try:
        yield rows
    except Exception as error:
        rows.stopped_by(error)
    _show(rows.record(means, time.perf_counter() - started))


class Table:
    """The rows of one check. Its methods compare like the functions of the same names; `case` names the row."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: list[Row] = []
        self._recorded = False

    def close(self, case: str, measured: Any, expected: Any, *, control: Any, atol: float = 0.0, rtol: float = 0.0) -> None:
        """As check.close."""
        self._add(case, measured, control, _close(expected, atol, rtol, nonfinite=False))

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
        """This case cannot be made here."""
        self._append(Row(case, "skipped", None, "", "not tried", reason))

    def stopped_by(self, error: BaseException) -> None:
        """An exception ended the block: what came after it was not compared."""
        reason = f"{type(error).__name__}: {compare.first_line(error)}; no row after this one was compared"
        self._rows.append(Row(f"after {len(self._rows)} rows", "broken", None, "", "not tried", reason))

    def record(self, means: str, seconds: float) -> Record:
        """All rows as one record, whose outcome is that of the worst row."""
        name, rows, self._recorded = self._name, tuple(self._rows), True
        if not rows:
            return Record(name, "failed", means, seconds=seconds, reason="the table has no row: nothing was compared")
        outcome = worst(row.outcome for row in rows)
        worth_saying = [row for row in rows if row.outcome not in ("passed", "skipped")]
        reason = "; ".join(f"{row.case}: {row.reason}" for row in worth_saying) or None
        good = sum(row.outcome == "passed" for row in rows)
        compared = sum(row.outcome != "skipped" for row in rows)
        if not compared:
            reason = "; ".join(f"{row.case}: {row.reason}" for row in rows)
            return Record(name, "skipped", reason, seconds=seconds, reason=reason)
        rejected = sum(row.control == "rejected" for row in rows)
        control = "rejected" if rejected == compared else f"rejected in {rejected} of {compared}"
        return Record(
            name, outcome, means, f"{good} of {compared} rows", "every row as its bound asks", control, seconds, reason, rows
        )

    def _add(self, case: str, measured: Any, control: Any, comparison: Comparison) -> None:
        row = _row(case, comparison, lambda: _value(measured), lambda: _value(control))
        self._append(_with_known_issue(row, self._name, case))

    def _append(self, row: Row) -> None:
        if self._recorded:
            raise ValueError(f"table {self._name!r} is recorded already: compare {row.case!r} inside its with block")
        if any(row.case == earlier.case for earlier in self._rows):
            raise ValueError(f"table {self._name!r} has a row {row.case!r} already")
        self._rows.append(row)


# -------------------------------------------------------------------------------------------------- how a check is made


class _Ledger:
    """What this kernel's checks have seen so far, from which cells and on which device; the verdict reads it."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.sources: list[str] = []
        self.device = "cpu"
        self._made_in: dict[str, int | None] = {}

    def keep(self, record: Record) -> None:
        """Keep the record in place of an earlier one of that name, which a cell that is run again leaves behind.

        Within one run of a cell the worse of the two stays: in a loop, the last must not hide the others. A skip takes no
        comparison back, whenever it comes.
        """
        from IPython import get_ipython

        shell, earlier = get_ipython(), self.records.get(record.name)
        run = shell.execution_count if shell else None
        same_run = run is not None and self._made_in.get(record.name) == run
        if earlier and (same_run or record.outcome == "skipped"):
            record = worse(earlier, record)
        self.records[record.name], self._made_in[record.name] = record, run

    def watch_cells(self) -> None:
        """Keep the source of every cell from the one that is running on: a kernel that nbval drives has no history."""
        from IPython import get_ipython

        if shell := get_ipython():
            shell.events.register("pre_run_cell", lambda cell: self.sources.append(cell.raw_cell))
            shell.events.register("post_run_cell", lambda done: self.sources.append(done.info.raw_cell))


ledger = _Ledger()
ledger.watch_cells()


def _close(expected: Any, atol: float, rtol: float, nonfinite: bool) -> Comparison:
    if not (atol >= 0 and rtol >= 0 and 0 < atol + rtol < math.inf):
        raise ValueError("check.close needs a finite bound, atol or rtol above 0; for no difference at all use check.equal")
    return partial(compare.close, expected=expected, atol=atol, rtol=rtol, nonfinite=nonfinite)


def _record(name: str, measured: Any, control: Any, means: str, comparison: Comparison) -> None:
    started = time.perf_counter()
    row = _row("", comparison, lambda: _value(measured), lambda: _value(control))
    _show(_as_record(name, means, _with_known_issue(row, name, None), time.perf_counter() - started))


def _value(given: Any) -> Any:
    """A function without arguments stands for the value that it returns."""
    return given() if callable(given) and not hasattr(given, "numpy") else given


def _row(case: str, comparison: Comparison, measured: Callable[[], Any], control: Callable[[], Any]) -> Row:
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


def _with_known_issue(row: Row, name: str, case: str | None) -> Row:
    issue = known_issue(name, ledger.device, case)
    if issue is None or row.outcome not in ("passed", "failed"):
        return row
    if row.outcome == "failed":
        reason = f"{issue.symptom} ({issue.reference}). Way round: {issue.workaround}"
        return Row(row.case, "known", row.measured, row.expected, row.control, reason)
    reason = f"listed as {issue.id} in data/known_issues.yaml, yet it passes: take it off the list"
    return Row(row.case, "fixed", row.measured, row.expected, row.control, reason)


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
