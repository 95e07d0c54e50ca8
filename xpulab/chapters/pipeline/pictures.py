"""Diagrams of 13_pipeline: layers on their ranks, the orders of work with their bubbles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from xpulab.chapters.shared import figures
from xpulab.reference.pipeline import Piece, bubble, duration, end_times

Orders = Mapping[str, tuple[Sequence[Sequence[Piece]], int]]
"""By the name of a schedule: the pieces of work of each rank, in its order, and the number of stages on a rank."""

LANE = 0.84
"""The height of a bar, where lanes are 1 apart."""


def split(parts: Sequence[Sequence[str]], tokens: Sequence[int], activations: Sequence[int]) -> None:
    """The layers of each rank, and what goes from rank to rank.

    parts: the names of the layers of each rank. tokens, activations: shapes of the input and of what ranks exchange.
    """
    wide, gap, high = 4.0, 3.6, 0.8
    tallest = max(map(len, parts)) * high
    axes = figures.diagram(len(parts) * (wide + gap) + gap, tallest + 1.7, "Each rank holds consecutive layers")
    middle = 0.4 + tallest / 2
    for rank, names in enumerate(parts):
        left = gap + rank * (wide + gap)
        axes.text(left + wide / 2, tallest + 0.7, f"rank {rank}", ha="center", va="bottom", weight="bold")
        for index, name in enumerate(names):
            figures.box(axes, left, 0.4 + tallest - (index + 1) * high, wide, high - 0.12, name, "first")
        into = f"tokens\n{list(tokens)}" if rank == 0 else f"activations\n{list(activations)}"
        figures.arrow(axes, (left - gap + 0.25, middle + 0.5), (left - 0.25, middle + 0.5), into)
        if rank > 0:
            figures.arrow(axes, (left - 0.25, middle - 1.2), (left - gap + 0.25, middle - 1.2), "gradients", dashed=True)
    right = len(parts) * (wide + gap)
    figures.arrow(axes, (right + 0.25, middle + 0.5), (right + gap - 0.25, middle + 0.5), "loss")
    plt.show()


def schedules(orders: Orders) -> None:
    """The work of every rank over time under each schedule, on one time axis; grey is the bubble, digits are micro-batches."""
    ranks = len(next(iter(orders.values()))[0])
    figure, panels = plt.subplots(
        len(orders), figsize=(9.0, len(orders) * (0.3 * ranks + 0.55) + 0.75), squeeze=False, sharex=True, layout="constrained"
    )
    for axes, (name, (of_ranks, stages_per_rank)) in zip(panels[:, 0], orders.items(), strict=True):
        _lanes(axes, of_ranks, stages_per_rank)
        axes.set_title(
            f"{name}: {100 * bubble(of_ranks, stages_per_rank):.1f} % of the time is bubble", loc="left", fontsize=10
        )
    longest = max(max(end_times(*each).values()) for each in orders.values())
    panels[-1, 0].set(xlim=(0, longest), xlabel="time (forward passes of one micro-batch through all layers of a rank)")
    figure.legend(handles=_legend(orders), loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    plt.show()


FILLS = {
    "F": (figures.TONES["first"], figures.TONES["plain"]),
    "B": (figures.TONES["strong"], figures.Tone("#8fb0d6")),
}
"""How forward and backward passes are filled, of the first stage on a rank and of its second stage: four shades of grey."""


def _lanes(axes: plt.Axes, of_ranks: Sequence[Sequence[Piece]], stages_per_rank: int) -> None:
    ends = end_times(of_ranks, stages_per_rank)
    ranks = len(of_ranks)
    for rank in range(ranks):
        axes.add_patch(_bar(0, rank, max(ends.values()), figures.TONES["idle"]))
    for piece, end in ends.items():
        kind, stage, micro_batch = piece
        wide = duration(piece, stages_per_rank)
        tone = FILLS[kind][stage // ranks % 2]
        axes.add_patch(_bar(end - wide, stage % ranks, wide, tone))
        axes.text(
            end - wide / 2,
            stage % ranks,
            str(micro_batch),
            ha="center",
            va="center",
            fontsize=7,
            color=tone.ink,
        )
    axes.set(ylim=(ranks - 0.45, -0.55))
    axes.set_yticks(range(ranks), [f"rank {rank}" for rank in range(ranks)])
    axes.grid(visible=False)


def _bar(start: float, rank: int, wide: float, tone: figures.Tone) -> plt.Rectangle:
    return plt.Rectangle((start, rank - LANE / 2), wide, LANE, facecolor=tone.fill, edgecolor="#555555", linewidth=0.6)


def _legend(orders: Orders) -> list[plt.Rectangle]:
    texts = {"forward": FILLS["F"][0], "backward": FILLS["B"][0]}
    if any(stages_per_rank > 1 for _, stages_per_rank in orders.values()):
        texts |= {"forward, second stage": FILLS["F"][1], "backward, second stage": FILLS["B"][1]}
    handles = []
    for text, tone in {**texts, "bubble": figures.TONES["idle"]}.items():
        handle = _bar(0, 0, 1, tone)
        handle.set_label(text)
        handles.append(handle)
    return handles
