"""How a notebook shows its checks and its verdict: as text, and as an HTML twin with badges, a banner and tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from xpulab.checks.ledger import ledger
from xpulab.checks.table import reasons_of
from xpulab.devices import JUDGED, SIMULATED, judged_as
from xpulab.records.format import format_machine, format_measured
from xpulab.records.record import RED, Record, Row, RunContext

GREEN, SOFT, AMBER, WRONG = "#1a7f37", "#57606a", "#8a6d00", "#b00020"

_LISTED = {
    "<b>Known software defects</b>: of this release, not of this machine.": ("known", "fixed"),
    "<b>Expected on this device, never seen</b>: refuted where it did not come true.": ("predicted", "refuted"),
}
"""By heading the outcomes of checks that are about what data/known_issues.yaml lists."""
_ABOUT_LISTED = {outcome for outcomes in _LISTED.values() for outcome in outcomes}
_COLOURS = {"passed": GREEN, "skipped": SOFT, **dict.fromkeys(_ABOUT_LISTED, AMBER), **dict.fromkeys(RED, WRONG)}
_LEFT = "text-align:left;vertical-align:top"


def show(record: Record) -> None:
    """Add the record to the ledger, and display its line in the notebook with the record in the output's metadata."""
    from IPython.display import display

    ledger.keep(record)
    text = f"{record.outcome:<7} {record.name}  {record.means}"
    twin = f"{_badge(record.outcome)} <code>{html.escape(record.name)}</code> {html.escape(record.means)}"
    if record.outcome in RED:
        red: list[tuple[str, Row | Record]] = [(f"{row.case}: ", row) for row in record.rows if row.outcome in RED]
        red = red or [("", record)]
        details = "\n".join([*(_detail(case, result) for case, result in red), *_known_causes([result for _, result in red])])
        text, twin = f"{text}\n{details}", twin + red_lines(details)
    display({"text/plain": text, "text/html": twin}, raw=True, metadata=record.to_metadata())


def red_lines(text: str) -> str:
    """Lines that say what is wrong, as HTML."""
    return f'<pre style="color:{WRONG}">{html.escape(text)}</pre>'


def banner(green: bool, summary: str, context: RunContext | None, date: str) -> str:
    """What is READY or NOT READY, what was counted, and where it was measured, as HTML."""
    colour, word = (GREEN, "READY") if green else (WRONG, "NOT READY")
    if context and (rehearsed := judged_as(context.device)) != context.device:
        word = f"rehearsal for {JUDGED[rehearsed]}, no card was judged: {'green' if green else 'red'}"
    elif context:
        word = f"{JUDGED[context.device]}: {word}"
    facts = [*_where(context), date]
    return (
        f'<div style="border-left:0.6em solid {colour};padding:0.4em 1em;margin:0.4em 0">'
        f'<b style="font-size:1.6em;color:{colour}">{word}</b><br>{html.escape(summary)}<br>'
        f'<span style="color:{SOFT}">{html.escape(" · ".join(facts))}</span></div>'
    )


def verdict_tables(records: Sequence[Record]) -> str:
    """The checks of this machine with their values, then those that meet a known or an expected defect, as HTML."""
    own = [record for record in records if record.outcome not in _ABOUT_LISTED]
    tables = _table(
        ("outcome", "check", "measured", "expected", "reason"),
        ((format_measured(record), record.expected, _reason(record)) for record in own),
        own,
    )
    for heading, outcomes in _LISTED.items():
        if listed := [record for record in records if record.outcome in outcomes]:
            tables += f"<p>{heading}</p>"
            tables += _table(("outcome", "check", "defect and workaround"), ((_reason(record),) for record in listed), listed)
    return tables


def _detail(case: str, result: Row | Record) -> str:
    measured = "nothing" if result.measured is None else result.measured
    shown = f"{measured:.6g}" if isinstance(measured, float) else measured
    return (
        f"        {case}measured {shown}, expected {result.expected or '-'}, control {result.control}\n        {result.reason}"
    )


def _known_causes(results: Sequence[Row | Record]) -> list[str]:
    """Cause and command for what the reasons of a red check say, where data/remedies.yaml has them."""
    from xpulab.doctor.remedies import match, remedy_on

    known = match("\n".join(result.reason for result in results if result.reason))
    return [f"        cause: {row.cause}\n        fix: {remedy_on(row, ledger.device)}" for row in known]


def _where(context: RunContext | None) -> list[str]:
    """Device, machine, card, driver and versions."""
    if context is None:
        return ["no device was chosen"]
    cards = f"{context.cards} {'simulated ' if context.device == SIMULATED else ''}card{'s' if context.cards > 1 else ''}"
    return [context.device if context.device == "cpu" else f"{context.device}, {cards}", *format_machine(context)]


def _reason(record: Record) -> str:
    """The reasons of the rows that need one, a line each; of a check without rows its own."""
    rows = [row for row in record.rows if row.outcome not in ("passed", "skipped")]
    return "\n".join(reasons_of(rows)) or record.reason or ""


def _badge(outcome: str) -> str:
    """An outcome as a coloured label; the word stays readable without colours."""
    style = f"background:{_COLOURS[outcome]};color:#fff;border-radius:0.6em;padding:0.05em 0.6em;font-size:0.9em"
    return f'<span style="{style}">{outcome}</span>'


def _table(titles: Sequence[str], texts: Iterable[Sequence[str]], records: Sequence[Record]) -> str:
    """A row for each record: its outcome, its name, which do not break in the middle of a word, and its texts."""
    head = "".join(f'<th style="{_LEFT}">{title}</th>' for title in titles)
    rows = ""
    for record, own in zip(records, texts, strict=True):
        cells = [f'<td style="{_LEFT};white-space:nowrap">{_badge(record.outcome)}</td>']
        cells.append(f'<td style="{_LEFT}">{html.escape(record.name)}</td>')
        cells += [f'<td style="{_LEFT};overflow-wrap:anywhere;white-space:pre-line">{html.escape(text)}</td>' for text in own]
        rows += f"<tr>{''.join(cells)}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
