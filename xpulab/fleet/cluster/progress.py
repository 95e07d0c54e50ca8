"""The progress of a fleet run: a live table of the nodes that have not answered in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from xpulab.fleet.cluster.answer import Answer
from xpulab.harness.timed_lines import TimedLines
from xpulab.messages import N_, labelled, shown

_ROWS = 24
"""Of nodes that have not answered; the others are counted."""


def progress_on(console: Console, nodes: Sequence[str]) -> Progress:
    """The progress display that suits the console."""
    return _Table(console, nodes) if console.is_terminal else Progress(console, nodes)


def format_answer(answer: Answer) -> str:
    """An answer in one line, without the node's name, in the chosen language."""
    ended = N_(f"{answer.outcome} after {answer.seconds:.0f} s") if answer.seconds else answer.outcome
    return shown(f"{ended}: {answer.sentence}" if answer.sentence else ended)


class Progress(TimedLines):
    """Shows what happens, as a context: a line for each new state of a node, and one for its answer."""

    def __init__(self, console: Console, nodes: Sequence[str]) -> None:
        super().__init__(console)
        self._states: dict[str, str] = {}
        self._open = len(nodes)

    def on_state(self, node: str, state: str) -> None:
        """The task of a node is in this state now; the same state may be reported again."""
        if self._states.get(node) != state:
            self._states[node] = state
            self._say(f"{node}: {shown(state)}")

    def on_line(self, node: str, line: str) -> None:
        """The run of a node printed a line."""

    def on_answer(self, answer: Answer) -> None:
        """The answer of a node is final."""
        self._open -= 1
        self._say(f"{answer.node}: {format_answer(answer)} ({shown(f'{self._open} to go')})")


class _Table(Progress):
    """A row for each node that has not answered, with the last line of its run; counts of the others."""

    def __init__(self, console: Console, nodes: Sequence[str]) -> None:
        super().__init__(console, nodes)
        self._rows = {node: ("waiting", "") for node in nodes}
        self._counts: Counter[str] = Counter()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> _Table:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def on_state(self, node: str, state: str) -> None:
        self._rows[node] = (state, self._rows[node][1])

    def on_line(self, node: str, line: str) -> None:
        self._rows[node] = (self._rows[node][0], line)

    def on_answer(self, answer: Answer) -> None:
        self._rows.pop(answer.node, None)
        self._counts[answer.outcome] += 1
        if answer.outcome != "done":
            self._live.console.print(f"{answer.node}: {format_answer(answer)}", highlight=False, markup=False)

    def _render(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        counts = ", ".join(f"{count} {shown(outcome)}" for outcome, count in sorted(self._counts.items()))
        seconds, open_ = f"{time.monotonic() - self._started:.0f} s", len(self._rows)
        table.add_row(seconds, labelled("answered: ", counts or N_("none yet")), shown(f"{open_} to go"))
        for node, (state, line) in list(self._rows.items())[:_ROWS]:
            table.add_row(escape(node), escape(shown(state)), escape(line[:80]))
        return table
