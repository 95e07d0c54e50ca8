"""The last cell of every notebook: READY or NOT READY, all checks, and an error unless the notebook is green."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from xpulab.checks.ledger import ledger
from xpulab.checks.shown import banner, verdict_tables
from xpulab.records.planned import planned_checks
from xpulab.records.record import RED, Record, is_compared, is_green, reconcile


class NotebookIsRed(Exception):
    """A check failed, was broken or never ran, or nothing was compared."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def verdict() -> None:
    """Show the verdict and every check with its numbers; raise NotebookIsRed when the notebook is not green.

    A check is planned when its name is in the source of a cell that has run. Run all cells before you rely on the verdict.
    """
    from IPython import get_ipython
    from IPython.display import display

    history = get_ipython().user_ns["In"]
    records = reconcile(_planned_names(history if any(history) else ledger.sources), ledger.records.values())
    summary, date = _summary(records), datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    html = banner(is_green(records), summary, ledger.run_context, date) + verdict_tables(records)
    display({"text/plain": summary, "text/html": html}, raw=True)
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
    listed = ", ".join(f"{count} {outcome}" for outcome, count in Counter(record.outcome for record in records).items())
    return f"{listed}. {len(compared)} of {len(records)} planned checks compared; {rejected} controls rejected."


def _why_red(records: tuple[Record, ...]) -> str:
    red = [f"{record.name} ({record.outcome})" for record in records if record.outcome in RED]
    if red:
        return f"{len(red)} of {len(records)} checks are red: {', '.join(red)}"
    return "nothing was compared, so the notebook is not green"
