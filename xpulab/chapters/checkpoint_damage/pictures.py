"""Pictures of 07_checkpoint_damage: what loading says of a damaged file, and what a crash in a save leaves behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from xpulab.chapters.shared.figures import box, diagram

_TONES = {"names it": "first", "error": "third", "no effect": "idle", "SILENT": "wrong", "-": "plain"}


def reactions(found: Mapping[tuple[str, str, str], str], files: Mapping[str, Sequence[str]], damages: Sequence[str]) -> None:
    """How loading reacts to each damage (columns) of each file (rows).

    found: by (kind of checkpoint, file, damage) one of "names it", "error", "no effect", "SILENT", "-".
    files: the files by kind.
    """
    rows = [(kind, name) for kind, names in files.items() for name in names]
    width, height, left = 2.6, 0.7, 10.2
    axes = diagram(left + width * len(damages), height * (len(rows) + 1.2), "What loading says of a damaged file")
    for column, how in enumerate(damages):
        axes.text(left + width * (column + 0.5), height * (len(rows) + 0.5), how, ha="center", va="center", fontsize=10)
    for number, (kind, name) in enumerate(rows):
        bottom = height * (len(rows) - 1 - number)
        axes.text(left - 0.2, bottom + height / 2, f"{kind}: {name}", ha="right", va="center", fontsize=8.5)
        for column, how in enumerate(damages):
            text = found[kind, name, how]
            weight = "bold" if text == "SILENT" else "normal"
            box(axes, left + width * column, bottom, width, height, text, _TONES[text], fontsize=8.5, fontweight=weight)
    plt.show()


def kills(left_behind: Mapping[str, Sequence[int]], newest: Mapping[str, int]) -> None:
    """Which checkpoints a kill leaves (columns), for each place of the kill (rows).

    left_behind: by place the steps of the folders that are there. newest: by place the step of the newest complete one.
    """
    columns = sorted({step for steps in left_behind.values() for step in steps})
    width, height, left = 3.4, 0.7, 7.4
    axes = diagram(left + width * len(columns), height * (len(left_behind) + 1.2), "What a kill in a save leaves behind")
    for column, step in enumerate(columns):
        middle = (left + width * (column + 0.5), height * (len(left_behind) + 0.5))
        axes.text(*middle, f"checkpoint-{step}", ha="center", va="center", fontsize=10)
    for number, (place, steps) in enumerate(left_behind.items()):
        bottom = height * (len(left_behind) - 1 - number)
        axes.text(left - 0.2, bottom + height / 2, place, ha="right", va="center", fontsize=9)
        for column, step in enumerate(columns):
            text, tone = _state(step, steps, newest[place])
            box(axes, left + width * column, bottom, width, height, text, tone)
    plt.show()


def _state(step: int, steps: Sequence[int], newest: int) -> tuple[str, str]:
    """What is in the folder of a step, in words, and the tone of its box."""
    if step not in steps:
        return "", "plain"
    if step == newest:
        return "newest complete", "first"
    return ("incomplete", "wrong") if step > newest else ("complete, older", "idle")
