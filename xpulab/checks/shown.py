"""Shows the record of a check: its line in the notebook, with the record in the output's metadata."""

from __future__ import annotations

from xpulab.checks import markup
from xpulab.checks.ledger import ledger
from xpulab.records.record import RED, Record, Row


def show(record: Record) -> None:
    """Add the record to the ledger, and display its line with the record in the output's metadata."""
    from IPython.display import display

    ledger.keep(record)
    text, twin = f"{record.outcome:<8}{record.name}  {record.means}", markup.line(record)
    if record.outcome in RED:
        details = "\n".join([*_details(record), *_known_causes(record)])
        text, twin = f"{text}\n{details}", twin + markup.details(details)
    display({"text/plain": text, "text/html": twin}, raw=True, metadata=record.to_metadata())


def _details(record: Record) -> list[str]:
    if record.rows:
        return [_detail(row.case, row) for row in record.rows if row.outcome in RED]
    return [_detail("", record)]


def _known_causes(record: Record) -> list[str]:
    """Cause and command for what the reasons of a red check say, where data/remedies.yaml has them."""
    from xpulab.doctor.remedies import match, remedy_on

    reasons = [record.reason, *(row.reason for row in record.rows if row.outcome in RED)]
    known = match("\n".join(filter(None, reasons)))
    return [f"        cause: {row.cause}\n        fix: {remedy_on(row, ledger.device)}" for row in known]


def _detail(case: str, result: Row | Record) -> str:
    parts = [f"measured {_format_measured(result.measured)}", f"expected {result.expected or '-'}", f"control {result.control}"]
    return f"        {case + ': ' if case else ''}{', '.join(parts)}\n        {result.reason}"


def _format_measured(measured: float | str | None) -> str:
    if isinstance(measured, float):
        return f"{measured:.6g}"
    return "nothing" if measured is None else str(measured)
