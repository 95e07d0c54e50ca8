"""The last cell of every notebook: one table of all checks, and an error unless the notebook is green."""

from __future__ import annotations

import html

from xpulab.checks.ledger import ledger
from xpulab.records.planned import planned_checks
from xpulab.records.record import RED, Record, is_compared, is_green, reconcile

_COLOURS = {"failed": "#b00020", "broken": "#b00020", "missing": "#b00020", "known": "#8a6d00", "fixed": "#8a6d00"}


class NotebookIsRed(Exception):
    """A check failed, was broken or never ran, or nothing was compared."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def verdict() -> None:
    """Show every check with its numbers; raise NotebookIsRed when the notebook is not green.

    A check is planned when its name is in the source of a cell that has run. Run all cells before you rely on the verdict.
    """
    from IPython import get_ipython
    from IPython.display import HTML, display

    history = get_ipython().user_ns["In"]
    cells = history if any(history) else ledger.sources
    records = reconcile(_planned_names(cells), ledger.records.values())
    display(HTML(_table(records)))
    print(_summary(records))
    if not is_green(records):
        raise NotebookIsRed(_why_red(records))


def _planned_names(cells: list[str]) -> list[str]:
    """The names planned in the cells, in order, each once; `cells` has every cell that ran, with repetitions."""
    names: dict[str, None] = {}
    for number, cell in enumerate(cells):
        names.update(dict.fromkeys(check.name for check in planned_checks([cell], "this notebook", first=number)))
    return list(names)


def _summary(records: tuple[Record, ...]) -> str:
    compared = [record for record in records if is_compared(record)]
    rejected = sum(record.control == "rejected" for record in compared)
    counts = {outcome: sum(record.outcome == outcome for record in records) for outcome in _outcomes(records)}
    listed = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    return f"{listed}. {len(compared)} of {len(records)} planned checks compared; {rejected} controls rejected."


def _outcomes(records: tuple[Record, ...]) -> list[str]:
    return list(dict.fromkeys(record.outcome for record in records))


def _why_red(records: tuple[Record, ...]) -> str:
    red = [f"{record.name} ({record.outcome})" for record in records if record.outcome in RED]
    if red:
        return f"{len(red)} of {len(records)} checks are red: {', '.join(red)}"
    return "nothing was compared, so the notebook is not green"


def _table(records: tuple[Record, ...]) -> str:
    head = "".join(f'<th style="text-align:left">{title}</th>' for title in ("outcome", "check", "measured", "expected", ""))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(map(_row, records))}</tbody></table>"


def _row(record: Record) -> str:
    measured = f"{record.measured:.6g}" if isinstance(record.measured, float) else record.measured
    colour = _COLOURS.get(record.outcome, "inherit")
    texts = (record.outcome, record.name, "" if measured is None else measured, record.expected, record.reason or "")
    cells = "".join(f'<td style="text-align:left;color:{colour}">{html.escape(str(text))}</td>' for text in texts)
    return f"<tr>{cells}</tr>"
