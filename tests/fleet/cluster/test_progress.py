"""The lines that a fleet run shows on its way, where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from xpulab import messages
from xpulab.fleet.cluster.answer import Answer
from xpulab.fleet.cluster.progress import progress_on


def lines_of(language):
    messages.choose(language, {})
    file = io.StringIO()
    with progress_on(Console(file=file, width=200), ["a", "b"]) as progress:
        for state in ("submitted", "submitted", "running on host-1"):
            progress.on_state("a", state)
        progress.on_answer(Answer("a", "done", "", 1, 12.0))
        progress.on_answer(Answer("b", "failed", "the run left no result.json: killed", 1, 3.0))
    return [line.partition("] ")[2] for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        (
            "en",
            [
                "a: submitted",
                "a: running on host-1",
                "a: done after 12 s (1 to go)",
                "b: failed after 3 s: the run left no result.json: killed (0 to go)",
            ],
        ),
        (
            "zh",
            [
                "a: 已提交",
                "a: 正在 host-1 上运行",
                "a: 12 s 后完成 (还有 1 个)",
                "b: 3 s 后未通过：运行没有留下 result.json：killed (还有 0 个)",
            ],
        ),
    ],
)
def test_each_new_state_and_each_answer_is_a_line_in_the_chosen_language(language, lines):
    assert lines_of(language) == lines
