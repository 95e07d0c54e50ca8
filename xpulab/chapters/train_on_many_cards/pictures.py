"""Diagrams of 12_train_on_many_cards: what a rank holds, and when the cards of each way communicate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures

_FORWARD, _BACKWARD = ("forward, half of the rows", 3, "first"), ("backward", 5, "second")
_ADAMW, _HALF_OF_ADAMW = ("AdamW", 1.6, "third"), ("AdamW, half", 1.6, "third")
_ATTENTION, _MLP, _BACK, _SUM = (
    ("attention", 1.3, "first"),
    ("MLP", 1.3, "first"),
    ("backward", 2, "second"),
    ("+", 0.5, "strong"),
)
_DOWN, _UP, _LAST = ("↓", 0.5, "strong"), ("↑", 0.5, "strong"), ("AdamW", 1.2, "third")
_FIRST, _SECOND, _WAITS = ("1", 1.4, "first"), ("2", 1.4, "first"), ("waits", 1.4, "idle")
_BACK_OF_FIRST, _BACK_OF_SECOND, _WAITS_LONG = ("1", 2, "second"), ("2", 2, "second"), ("waits", 2, "idle")

STEPS: Mapping[str, Sequence[Sequence[tuple[str, float, str]]]] = {
    "data parallel": [[_FORWARD, _BACKWARD, ("mean of gradients", 2.4, "strong"), _ADAMW]] * 2,
    "sharding, stage 1": [
        [_FORWARD, _BACKWARD, ("gradients", 1.2, "strong"), _HALF_OF_ADAMW, ("weights", 1.2, "strong")],
    ]
    * 2,
    "tensor parallel": [[_ATTENTION, _SUM, _MLP, _SUM, _BACK, _SUM, _BACK, _SUM, _HALF_OF_ADAMW]] * 2,
    "pipeline": [
        [_FIRST, _DOWN, _SECOND, _DOWN, _WAITS_LONG, _UP, _BACK_OF_FIRST, _WAITS, _UP, _BACK_OF_SECOND, _LAST],
        [_WAITS, _DOWN, _FIRST, _DOWN, _BACK_OF_FIRST, _UP, _SECOND, _BACK_OF_SECOND, _UP, _LAST],
    ],
}
"""By way, for each rank: what it does in a step, how long that is drawn, and its tone; "strong" is on both ranks at once."""


def held(shares: Mapping[str, Sequence[float]]) -> None:
    """By way the shares of weights and of AdamW's moments of one card that its fullest rank has."""
    names = list(shares)
    axes = figures.new_axes()
    places = np.arange(len(names))
    for index, (label, hatch) in enumerate((("weights", ""), ("AdamW's moments", "///"))):
        axes.barh(
            places + 0.2 - 0.4 * index,
            [each[index] for each in shares.values()],
            0.38,
            label=label,
            hatch=hatch,
            edgecolor="white",
        )
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set(xlabel="share of what one card holds", title="What the fullest rank holds", xlim=(0, 1.75))
    axes.legend(frameon=False, loc="center right")
    plt.show()


def steps() -> None:
    """A step of two ranks in each way. Dark: both ranks communicate."""
    lanes = sum(len(each) + 0.9 for each in STEPS.values())
    axes = figures.diagram(15.5, lanes + 0.2, "A step of two ranks (schematic; dark: they exchange numbers)")
    top = lanes
    for name, of_ranks in STEPS.items():
        axes.text(0, top - 0.35, name, ha="left", va="center", weight="bold", fontsize=9)
        for rank, parts in enumerate(of_ranks):
            bottom, left = top - 1.45 - rank, 1.6
            axes.text(1.4, bottom + 0.4, f"rank {rank}", ha="right", va="center", fontsize=8)
            for text, width, tone in parts:
                figures.box(axes, left, bottom, width, 0.8, text, tone, fontsize=7)
                left += width
        top -= len(of_ranks) + 0.9
    plt.show()
