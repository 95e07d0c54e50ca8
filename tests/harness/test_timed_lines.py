"""Where there is no terminal, a run shows lines with the seconds since its start, as long as they are."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

from rich.console import Console

from xpulab.fleet.cluster.progress import progress_on as progress_of_fleet_on
from xpulab.harness.progress import progress_on

LONG = "99_" + "[name]" * 20


def shown_by(display_on):
    shown = io.StringIO()
    display, show = display_on(Console(file=shown, width=40))
    with display as entered:
        show(entered)
    return shown.getvalue()


def test_a_notebook_is_announced_once_with_its_whole_name():
    chapter = SimpleNamespace(name=LONG)
    times = SimpleNamespace(seconds=lambda plan: 3.0)
    text = shown_by(
        lambda console: (progress_on(console, [], times), lambda lines: [lines.on_cell(chapter, n, 9) for n in (1, 2)])
    )
    assert re.fullmatch(r"\[ +\d+\.\d s\] " + re.escape(f"{LONG}: started, 9 cells, about 3 s\n"), text)


def test_a_node_has_a_line_for_each_new_state():
    states = ("waiting", "running", "running")
    text = shown_by(
        lambda console: (progress_of_fleet_on(console, [LONG]), lambda lines: [lines.on_state(LONG, each) for each in states])
    )
    assert re.fullmatch("".join(rf"\[ +\d+\.\d s\] {re.escape(LONG)}: {state}\n" for state in states[:2]), text)
