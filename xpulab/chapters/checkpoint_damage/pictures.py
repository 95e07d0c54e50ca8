"""The picture of 07_checkpoint_damage: what loading says of a damaged file."""

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
