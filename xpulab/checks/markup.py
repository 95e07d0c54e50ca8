"""The HTML twins of what checks and the verdict print: badges, the banner, tables. The text is the same with and without."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from xpulab.checks.rows import reasons_of
from xpulab.devices import JUDGED, SIMULATED
from xpulab.records.format import format_measured
from xpulab.records.record import RED, Record, RunContext

GREEN, SOFT, AMBER, WRONG = "#1a7f37", "#57606a", "#8a6d00", "#b00020"

_COLOURS = {"passed": GREEN, "skipped": SOFT, "known": AMBER, "fixed": AMBER, **dict.fromkeys(RED, WRONG)}
_DEFECTS = ("known", "fixed")
_LEFT = "text-align:left;vertical-align:top"


def line(record: Record) -> str:
    """The line of a check: a badge with its outcome, its name, and what a pass means."""
    return f"{badge(record.outcome)} <code>{html.escape(record.name)}</code> {html.escape(record.means)}"


def badge(outcome: str) -> str:
    """An outcome as a coloured label; the word stays readable without colours."""
    style = f"background:{_COLOURS[outcome]};color:#fff;border-radius:0.6em;padding:0.05em 0.6em;font-size:0.9em"
    return f'<span style="{style}">{outcome}</span>'


def details(text: str) -> str:
    """The lines below a red check."""
    return f'<pre style="color:{WRONG}">{html.escape(text)}</pre>'


def banner(green: bool, summary: str, context: RunContext | None, date: str) -> str:
    """What is READY or NOT READY, what was counted, and where it was measured: machine, card, driver, versions, date."""
    colour, word = (GREEN, "READY") if green else (WRONG, "NOT READY")
    word = f"{JUDGED[context.device]}: {word}" if context else word
    facts = [*_where(context), date]
    return (
        f'<div style="border-left:0.6em solid {colour};padding:0.4em 1em;margin:0.4em 0">'
        f'<b style="font-size:1.6em;color:{colour}">{word}</b><br>{html.escape(summary)}<br>'
        f'<span style="color:{SOFT}">{html.escape(" · ".join(facts))}</span></div>'
    )


def verdict_tables(records: Sequence[Record]) -> str:
    """The checks of this machine with their values, then, apart from them, those that meet a known software defect."""
    own = [record for record in records if record.outcome not in _DEFECTS]
    defects = [record for record in records if record.outcome in _DEFECTS]
    tables = _table(("outcome", "check", "measured", "expected"), map(_own_row, own))
    if defects:
        heading = "<p><b>Known software defects</b>: of this release, not of this machine.</p>"
        tables += heading + _table(("outcome", "check", "defect and workaround"), map(_defect_row, defects))
    return tables


def _where(context: RunContext | None) -> list[str]:
    if context is None:
        return ["no device was chosen"]
    machine = context.machine
    cards = f"{context.cards} {'simulated ' if context.device == SIMULATED else ''}card{'s' if context.cards > 1 else ''}"
    facts = [context.device if context.device == "cpu" else f"{context.device}, {cards}"]
    facts += [str(machine[name]) for name in ("card", "processor") if machine.get(name)]
    if machine.get("driver"):
        facts.append(f"driver {machine['driver']}")
    return facts + [f"{package} {version}" for package, version in context.versions.items() if "paddle" in package]


def _own_row(record: Record) -> str:
    """What was measured and expected; a reason stands in their place where there is none of both, and below them otherwise."""
    names = _outcome_and_name(record)
    reason = _cell(_reason(record), columns=2)
    values = "".join(_cell(html.escape(text)) for text in (format_measured(record), record.expected))
    if record.reason and not (format_measured(record) or record.expected):
        return _row(names + reason)
    return _row(names + values) + (_row(_cell("", columns=2) + reason) if record.reason else "")


def _defect_row(record: Record) -> str:
    return _row(_outcome_and_name(record) + _cell(_reason(record)))


def _outcome_and_name(record: Record) -> str:
    """Two cells that do not break in the middle of a word."""
    outcome = f'<td style="{_LEFT};white-space:nowrap">{badge(record.outcome)}</td>'
    return outcome + f'<td style="{_LEFT}">{html.escape(record.name)}</td>'


def _reason(record: Record) -> str:
    """The reasons of the rows that need one, a line each; of a check without rows its own."""
    reasons = reasons_of([row for row in record.rows if row.outcome not in ("passed", "skipped")])
    return "<br>".join(map(html.escape, reasons or [record.reason or ""]))


def _cell(content: str, columns: int = 1) -> str:
    """A cell of a table. content: HTML. columns: over how many of them it goes."""
    span = f' colspan="{columns}"' if columns > 1 else ""
    return f'<td{span} style="{_LEFT};overflow-wrap:anywhere">{content}</td>'


def _row(cells: str) -> str:
    return f"<tr>{cells}</tr>"


def _table(titles: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th style="{_LEFT}">{title}</th>' for title in titles)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
