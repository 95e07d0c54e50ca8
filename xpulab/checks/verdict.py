"""The last cell of every notebook: READY or NOT READY, all checks, and an error unless the notebook is green."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from xpulab.checks import markup
from xpulab.checks.ledger import ledger
from xpulab.records.planned import planned_checks
from xpulab.records.record import RED, Record, is_compared, is_green, reconcile


class NotebookIsRed(Exception):
    """A check failed, was broken or never ran, a cell raised, or nothing was compared."""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


def verdict() -> None:
    """Show the verdict and every check with its numbers; raise NotebookIsRed when the notebook is not green.

    A check is planned when its name is in the source of a cell that has run, or when the harness says that it left the check
    out. Run all cells before you rely on the verdict.
    """
    from IPython import get_ipython
    from IPython.display import display

    history = get_ipython().user_ns["In"]
    cells = history if any(history) else ledger.sources
    left_out = ledger.left_out
    planned = dict.fromkeys([*_planned_names(cells), *left_out.missing])
    records = reconcile(list(planned), ledger.records.values(), left_out.missing)
    green = is_green(records) and not left_out.raised
    summary = " ".join([_summary(records), *(f"{happened[0].upper()}{happened[1:]}." for happened in left_out.raised)])
    date = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    banner = markup.banner(green, summary, ledger.run_context, date)
    display({"text/plain": summary, "text/html": banner + markup.verdict_tables(records)}, raw=True)
    if not green:
        raise NotebookIsRed("; ".join([*left_out.raised, *_why_red(records)]))


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


def _why_red(records: tuple[Record, ...]) -> Iterator[str]:
    red = [f"{record.name} ({record.outcome})" for record in records if record.outcome in RED]
    if red:
        yield f"{len(red)} of {len(records)} checks are red: {', '.join(red)}"
    elif not any(map(is_compared, records)):
        yield "nothing was compared, so the notebook is not green"
