"""Pictures of 11_parallel_plan: what a card must hold and send, and the frontier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import TONES, new_panels
from xpulab.reference.cost import Communication, Memory

GIB = 2**30
PARTS = {"parameters": "first", "gradients": "second", "optimizer": "third", "activations": "fourth"}


def states_of_models(states: Mapping[str, Sequence[float]], card_gib: float) -> None:
    """Weights, gradients and AdamW's state of each model as bars, and a line at the memory of a card.

    states: the three numbers in GiB, by the name of the model. A bar that is longer than the axis has its length as text.
    """
    figure, panels = new_panels(1, height=2.6)
    axes, end = panels[0, 0], 2.6 * card_gib
    _stacked(axes, states, dict(zip(("weights", "gradients", "AdamW"), ("first", "second", "third"), strict=True)))
    for row, parts in enumerate(states.values()):
        if sum(parts) > end:
            axes.text(0.99 * end, row, f"{sum(parts):,.0f} GiB >", ha="right", va="center", fontsize=8, backgroundcolor="white")
    axes.axvline(card_gib, color="black", linestyle=":", linewidth=1.6)
    axes.annotate(f"a card: {card_gib:g} GiB", (card_gib, 4.45), xytext=(5, 0), textcoords="offset points", fontsize=8)
    axes.set(xlim=(0, end), xlabel="GiB, without any sharing", title="What a training keeps for its parameters, and one card")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    plt.show()


def memory_and_traffic(memory: Mapping[str, Memory], sent: Mapping[str, Communication], card_gib: float) -> None:
    """For each way to share the work two bars: what a card holds, by kind, and what it sends in a step."""
    figure, panels = new_panels(1, 2, height=2.9)
    left, right = panels[0]
    _stacked(left, {name: [getattr(each, part) / GIB for part in PARTS] for name, each in memory.items()}, PARTS)
    left.axvline(card_gib, color="black", linestyle=":", linewidth=1.6)
    left.set(xlabel="GiB (dotted line: a card)", title="What a card holds")
    totals = [each.total / GIB for each in sent.values()]
    right.barh(range(len(totals)), totals, color=TONES["strong"].fill, height=0.65)
    for row, total in enumerate(totals):
        right.text(total, row, f" {total:,.0f}", va="center", fontsize=8)
    right.set(xscale="log", xlim=(1, 12 * max(totals)), xlabel="GiB in a step (logarithmic)", title="What a card sends")
    right.set_yticks(range(len(totals)), [])
    right.invert_yaxis()
    right.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    plt.show()


def frontiers(
    points: Mapping[int, Sequence[tuple[float, float]]], best: Mapping[int, Sequence[int]], card_gib: float, model: str
) -> None:
    """Each legal choice as a point, memory against traffic, and the frontier; a panel for each number of cards.

    points: (memory, traffic) in bytes by the number of cards. best: the indices of the frontier.
    """
    figure, panels = plt.subplots(1, len(points), figsize=(7.0, 3.0), sharex=True, sharey=True, layout="constrained")
    for axes, (cards, found) in zip(panels, points.items(), strict=True):
        at = np.array(found) / GIB
        line = at[list(best[cards])]
        axes.loglog(*at.T, "o", markersize=3, color="#9aa7b5", label="legal")
        axes.loglog(*line.T, "-", color="#c1440e", marker="s", markersize=3, label="frontier")
        axes.axvline(card_gib, color="black", linestyle=":", linewidth=1, label=f"a card of {card_gib:g} GiB")
        axes.set(title=f"{cards:,} cards: {len(at)} legal", xlabel="memory of a card (GiB)")
    panels[0].set_ylabel("sent by a card in a step (GiB)")
    panels[0].legend(frameon=False, fontsize=7, loc="lower left")
    figure.suptitle(f"{model}: less memory costs more traffic", fontsize=10)
    plt.show()


def _stacked(axes: plt.Axes, bars: Mapping[str, Sequence[float]], tones: Mapping[str, str]) -> None:
    """Horizontal bars, the first on top, each of several pieces; tones: label to tone of each piece."""
    names, at = list(bars), np.arange(len(bars))
    left = np.zeros(len(bars))
    for (label, tone), piece in zip(tones.items(), np.array(list(bars.values())).T, strict=True):
        axes.barh(
            at, piece, left=left, color=TONES[tone].fill, hatch=TONES[tone].hatch, edgecolor="#555555", label=label, height=0.65
        )
        left += piece
    axes.set_yticks(at, names, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
