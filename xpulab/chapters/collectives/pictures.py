"""Diagrams of 09_collectives: values before and after, the steps of a ring, rates, links, waiting ranks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures
from xpulab.ranks.report import RankReport

LOW = 0.1
"""Where the lowest row of squares begins, so that its edge is inside the axes."""

Transfers = Mapping[tuple[int, int], tuple[bool, float]]
"""By (sender, receiver): whether every value was right, and the seconds of one transfer."""


def before_and_after(before: np.ndarray, after: Mapping[str, np.ndarray]) -> None:
    """What the ranks hold before a collective and after each of these; a row for each rank.

    before: [ranks, columns], whose value r * 10 + c is element c of rank r. after: by title what the ranks hold then, one of
    several columns each. A value that is none of `before` is a sum, and dark.
    """
    panels = {"before": before, **after}
    rows, gap = len(before), 2.2
    wide = sum(values.shape[1] for values in panels.values()) + gap * (len(panels) - 1) + 1.7
    axes = figures.diagram(wide, rows + 1.0, "What each rank holds")
    left = 1.6
    for rank in range(rows):
        axes.text(left - 0.2, rows - rank - 0.5 + LOW, f"rank {rank}", ha="right", va="center", fontsize=9)
    for title, values in panels.items():
        of_start = np.vectorize(lambda value: figures.OF_RANK[int(value // 10) % len(figures.OF_RANK)], otypes=[object])
        tones = np.where(np.isin(values, before), of_start(values), "strong")
        figures.grid_of(axes, values, left, LOW, tones=tones, label=title)
        left += values.shape[1] + gap
    figures.arrow(axes, (1.6 + before.shape[1] + 0.5, rows / 2), (1.6 + before.shape[1] + gap - 0.5, rows / 2))
    plt.show()


def ring(states: Sequence[np.ndarray], sends: Sequence[Sequence[int]]) -> None:
    """A ring all_reduce, step by step.

    states: what the ranks hold before the first step and after each, [ranks, chunks] each. sends: for each step the chunk
    that each rank sends to the next rank. A chunk that is sent has an arrow; a complete sum is dark.
    """
    ranks, columns = len(states[0]), 4
    rows = -(-len(states) // columns)
    total = states[0].sum(axis=0)
    wide, high = ranks + 1.4, ranks + 1.7
    axes = figures.diagram(columns * wide + 1.2, rows * high, "Ring: in each step every rank sends one chunk to the next rank")
    for number, state in enumerate(states):
        left, low = 1.4 + number % columns * wide, (rows - 1 - number // columns) * high + 0.5
        label = f"step {number + 1}" if number < len(sends) else "the result"
        tones = np.where(state == total, "strong", np.where(state == states[0], "plain", "first"))
        figures.grid_of(axes, state, left, low, tones=tones, label=label)
        if number % columns == 0:
            for rank in range(ranks):
                axes.text(left - 0.15, low + ranks - rank - 0.5, f"rank {rank}", ha="right", va="center", fontsize=8)
        for rank, chunk in enumerate(sends[number] if number < len(sends) else ()):
            _to_next_rank(axes, left + chunk + 0.82, low + ranks - rank - 0.5, last=rank == ranks - 1)
    plt.show()


def bandwidth(sizes: Sequence[int], seconds: Sequence[float], ranks: int) -> None:
    """Algorithm and bus bandwidth of an all_reduce. sizes: bytes of each message. seconds: how long each took."""
    algorithm = np.array(sizes) / np.array(seconds) / 1e9
    axes = figures.new_axes()
    axes.loglog(sizes, algorithm, "o-", label="algorithm bandwidth")
    axes.loglog(sizes, algorithm * 2 * (ranks - 1) / ranks, "s--", label="bus bandwidth")
    axes.set(
        xlabel="message (bytes)",
        ylabel="bandwidth (GB/s)",
        title=f"all_reduce over {ranks} ranks: small messages cost their latency",
    )
    axes.legend(frameon=False)
    plt.show()


def links(transfers: Transfers, size: int, ranks: int) -> None:
    """The rate of each link between two ranks as a matrix, from transfers of `size` bytes: the darker, the faster."""
    rates = {link: size / seconds / 1e9 for link, (right, seconds) in transfers.items() if right}
    axes = figures.diagram(ranks * 1.6 + 2.6, ranks + 1.4, "GB/s from rank to rank: darker is faster")
    for rank in range(ranks):
        axes.text(1.9, ranks - 1 - rank + LOW + 0.5, f"from {rank}", ha="right", va="center", fontsize=9)
        axes.text(2.0 + 1.6 * rank + 0.8, ranks + LOW + 0.1, f"to {rank}", ha="center", va="bottom", fontsize=9)
    for sender, receiver in transfers:
        rate, place = rates.get((sender, receiver)), (2.0 + 1.6 * receiver, ranks - 1 - sender + LOW)
        shade = 0.15 + 0.6 * rate / max(rates.values()) if rate else 0.0
        axes.add_patch(plt.Rectangle(place, 1.6, 1.0, facecolor=str(1 - shade), edgecolor="#555555"))
        ink = "#c1440e" if rate is None else "white" if shade > 0.5 else "black"
        text = f"{rate:.3g}" if rate else "wrong"
        axes.text(place[0] + 0.8, place[1] + 0.5, text, ha="center", va="center", fontsize=9, color=ink)
    plt.show()


def waiting(work: Sequence[float], waited: Sequence[float]) -> None:
    """How long each rank worked and how long it waited for the others, in seconds."""
    lanes = {
        f"rank {rank}": [(0.0, 1000 * own, "", "first"), (1000 * own, 1000 * others, "", "second")]
        for rank, (own, others) in enumerate(zip(work, waited, strict=True))
    }
    axes = plt.subplots(figsize=(7.0, 0.42 * len(lanes) + 1.3), layout="constrained")[1]
    figures.schedule(axes, lanes, x="time (ms)")
    axes.set_title(f"One round: rank {int(np.argmax(work))} works longest, and the others wait", loc="left")
    _legend(axes, {"first": "own work", "second": "waits for the other ranks"})
    plt.show()


NOTE = re.compile(r"\bat ([\d.]+) s: (.+)$", re.MULTILINE)
"""A line that a rank has printed: when, and what it does from then on."""


def timeline(reports: Sequence[RankReport], seconds: float, root_cause: int | None) -> None:
    """What every rank did until the run was ended after this many seconds, from the lines that it printed."""
    tones = {"computes": "first", "waits in all_reduce": "second", "loads the next batch": "wrong"}
    noted = {report.rank: [(float(at), text) for at, text in NOTE.findall(report.printed)] for report in reports}
    first = min((at for notes in noted.values() for at, _ in notes), default=0.0)
    lanes: dict[str, list[tuple[float, float, str, str]]] = {}
    shown: dict[str, str] = {}
    for rank, notes in noted.items():
        ends = [*(at for at, _ in notes[1:]), seconds]
        pieces = [(at, max(0.0, end - at), tones.get(text, "wrong"), text) for (at, text), end in zip(notes, ends, strict=True)]
        shown |= {tone: text for _, _, tone, text in pieces}
        mark = "  (root cause)" if rank == root_cause else ""
        lanes[f"rank {rank}{mark}"] = [(at - first, wide, "", tone) for at, wide, tone, _ in pieces]
    axes = plt.subplots(figsize=(8.0, 0.42 * len(lanes) + 1.3), layout="constrained")[1]
    figures.schedule(axes, lanes, x="time since the first step began (s)")
    axes.set_title("All ranks but one wait in all_reduce", loc="left")
    _legend(axes, shown)
    plt.show()


def _to_next_rank(axes: plt.Axes, x: float, y: float, last: bool) -> None:
    """An arrow from a chunk of one rank to that of the next one, which stands below; from the last rank to the first."""
    style = {"arrowstyle": "-|>", "color": "#c1440e", "linewidth": 1.5, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", xy=(x, y - (0.8 if last else 0.75)), xytext=(x, y - 0.25), arrowprops=style)


def _legend(axes: plt.Axes, texts: Mapping[str, str]) -> None:
    for tone, text in texts.items():
        chosen = figures.TONES[tone]
        axes.add_patch(plt.Rectangle((0, 0), 0, 0, facecolor=chosen.fill, hatch=chosen.hatch, edgecolor="#555555", label=text))
    axes.figure.legend(loc="outside lower center", ncols=len(texts), frameon=False, fontsize=8)
