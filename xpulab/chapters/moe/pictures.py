"""Diagrams of 14_moe: the queues of the experts, their loads, rows that go from rank to rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures


def queues(chosen: np.ndarray, kept: np.ndarray, experts: int, capacity: int) -> None:
    """The choices in the queue of each expert, in their order: tokens that it takes, tokens that it drops, empty places.

    chosen, kept: [tokens, k].
    """
    waiting: list[list[tuple[int, bool]]] = [[] for _ in range(experts)]
    for choice in range(chosen.shape[1]):
        for token, expert in enumerate(chosen[:, choice]):
            waiting[expert].append((token, bool(kept[token, choice])))
    longest = max(capacity, *map(len, waiting))
    axes = figures.diagram(longest + 3.2, experts * 1.15 + 1.1, f"Each expert takes {capacity} choices and drops the others")
    for expert, queue in enumerate(waiting):
        y = (experts - 1 - expert) * 1.15 + 0.1
        axes.text(1.9, y + 0.5, f"expert {expert}", ha="right", va="center", fontsize=9)
        for place in range(max(capacity, len(queue))):
            if place >= len(queue):
                figures.box(axes, 2.1 + place, y, 1.0, 1.0, "", "idle")
                continue
            token, taken = queue[place]
            ground = None if taken else {"facecolor": "white", "edgecolor": "none", "boxstyle": "circle,pad=0.4"}
            figures.box(axes, 2.1 + place, y, 1.0, 1.0, str(token), "first" if taken else "wrong", fontsize=12, bbox=ground)
    border, top = 2.1 + capacity, experts * 1.15 + 0.2
    axes.plot([border, border], [0, experts * 1.15 + 0.5], color="#c1440e", linewidth=2)
    axes.text(border - 0.15, top, "taken, up to the capacity", ha="right", va="bottom", fontsize=9)
    axes.text(border + 0.15, top, "dropped", ha="left", va="bottom", fontsize=9)
    plt.show()


def balance(loads: Mapping[str, Sequence[int]], capacity: int) -> None:
    """How many tokens choose each expert, a panel for each title; what is above the capacity is dropped."""
    figure, panels = plt.subplots(1, len(loads), figsize=(8.0, 2.7), sharey=True, squeeze=False, layout="constrained")
    for axes, (title, counts) in zip(panels[0], loads.items(), strict=True):
        taken = np.minimum(counts, capacity)
        axes.bar(range(len(counts)), taken, color="#1b4d89", label="taken")
        axes.bar(range(len(counts)), np.subtract(counts, taken), bottom=taken, color="#f3c3c3", hatch="xxx", label="dropped")
        axes.axhline(capacity, color="#c1440e", linestyle="--", label="capacity")
        axes.set(xlabel="expert", title=title, xticks=range(len(counts)))
        axes.grid(visible=False, axis="x")
    panels[0, 0].set_ylabel("tokens")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    plt.show()


def dispatch(before: Sequence[Sequence[tuple[int, int]]], after: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Rows on their ranks before and after the all-to-all: the number of the token, and below it that of its expert.

    before, after: for each rank (token, expert) of each row. The fill shows the rank that a row started on.
    """
    home = {token: rank for rank, rows in enumerate(before) for token, _ in rows}
    longest = [max(1, *map(len, each)) for each in (before, after)]
    ranks, gap = len(before), 2.0
    axes = figures.diagram(sum(longest) + gap + 1.8, ranks * 1.3 + 1.1, "Dispatch: each row goes to its expert's rank")
    for left, title, state in ((1.6, "before", before), (1.6 + longest[0] + gap, "after all-to-all", after)):
        axes.text(left, ranks * 1.3 + 0.2, title, ha="left", va="bottom", fontsize=9)
        for rank, rows in enumerate(state):
            y = (ranks - 1 - rank) * 1.3 + 0.1
            if left == 1.6:
                axes.text(left - 0.2, y + 0.55, f"rank {rank}", ha="right", va="center", fontsize=9)
            for place, (token, expert) in enumerate(rows):
                tone = figures.OF_RANK[home[token] % len(figures.OF_RANK)]
                figures.box(axes, left + place, y, 1.0, 1.1, f"t{token}\nE{expert}", tone, fontsize=8)
    figures.arrow(axes, (1.8 + longest[0], ranks * 0.65), (1.4 + longest[0] + gap, ranks * 0.65))
    plt.show()
