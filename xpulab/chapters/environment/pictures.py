"""Diagrams of chapter 00: how cards vote, what a type can hold, and the rates."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import STYLES, box, diagram, new_axes

BYTES_PER_ADDITION = 12
"""A float32 addition reads two numbers and writes one, 4 bytes each."""


def votes(hashes: Mapping[str, Mapping[str, str]], suspects: Mapping[str, list[str]]) -> None:
    """What each card computed, a line for each card and a column for each part; what differs from the majority is marked.

    hashes: by card and part. suspects: by part the cards that are suspects.
    """
    parts = list(next(iter(hashes.values())))
    odd = sorted({card for cards in suspects.values() for card in cards if card in hashes})
    title = f"Suspects: {', '.join(odd)}" if odd else "All cards computed the same bits"
    axes = diagram(2.2 * len(parts) + 2.2, 0.9 * len(hashes) + 0.9, title)
    for column, part in enumerate(parts):
        axes.text(3.2 + 2.2 * column, 0.9 * len(hashes) + 0.35, part.replace(", ", "\n"), ha="center", va="center", fontsize=9)
    for line, (card, by_part) in enumerate(reversed(list(hashes.items()))):
        axes.text(1.9, 0.9 * line + 0.5, card, ha="right", va="center", fontsize=10)
        for column, part in enumerate(parts):
            tone = "wrong" if card in suspects[part] else "first"
            box(axes, 2.2 + 2.2 * column, 0.9 * line + 0.1, 2.0, 0.75, by_part[part], tone)
    plt.show()


def stairs(given: np.ndarray, stored: Mapping[str, np.ndarray]) -> None:
    """What each type makes of the given numbers: by name of the type the values that it holds, same shape as given."""
    axes = new_axes()
    for (name, values), style in zip(stored.items(), cycle(STYLES)):
        different = len(np.unique(values))
        axes.plot(given, values, label=f"{name}: {different} different values", **style)
    axes.set(xlabel="number that is stored", ylabel="number that is read back")
    axes.set_title("Fewer bits make larger steps: numbers between 1 and 1.05", loc="left")
    axes.legend(frameon=False, fontsize=9)
    plt.show()


def rates(copies: Mapping[str, float], work: Mapping[str, tuple[float, float]], place: str) -> None:
    """The rates of copies as bars, and those of computations as a roofline.

    copies: GB/s by name. work: by name the floating-point operations per byte, and GFLOP/s. place: "xpu:0".
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained", gridspec_kw={"width_ratios": [2, 3]})
    bars = left.barh([name.replace(" to ", "\nto ") for name in copies], list(copies.values()), color="#cfe0f3", ec="#1b4d89")
    left.bar_label(bars, fmt=" %.1f", padding=2)
    left.set(xlabel="GB/s", xlim=(0, 1.25 * max(copies.values())), title="Copies")
    left.invert_yaxis()
    left.grid(visible=False, axis="y")
    _roofline(right, work)
    figure.suptitle(f"Rates of {place} in float32, measured on this machine", x=0.01, ha="left")
    plt.show()


def _roofline(axes: plt.Axes, work: Mapping[str, tuple[float, float]]) -> None:
    """The points, and the two limits that they suggest: bandwidth of the memory, and rate of the arithmetic."""
    bandwidth = BYTES_PER_ADDITION * work["add"][1]
    peak = max(rate for _, rate in work.values())
    corner = peak / bandwidth
    ends = (min(each for each, _ in work.values()) / 3, max(each for each, _ in work.values()) * 3)
    axes.loglog((ends[0], corner), (bandwidth * ends[0], peak), "--", color="#777777", label=f"memory: {bandwidth:.1f} GB/s")
    axes.loglog((corner, ends[1]), (peak, peak), ":", color="#777777", label=f"arithmetic: {peak:.0f} GFLOP/s")
    products = {name: point for name, point in work.items() if name != "add"}
    axes.loglog(*work["add"], "s", color="#c1440e", label="addition", linestyle="none")
    axes.loglog(
        *np.transpose(list(products.values())),
        "o",
        color="#1b4d89",
        label="product of n x n matrices",
        linestyle="none",
        zorder=4,
    )
    beside: dict[str, Any] = {"textcoords": "offset points", "xytext": (5, -5), "ha": "left", "va": "top"}
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # the line of the memory does not cross the text
    for name, (intensity, rate) in products.items():
        text = f"n = {name.split()[-1]}"
        axes.annotate(text, (intensity, rate), fontsize=8, bbox=ground, **beside)
    axes.set(xlabel="operations per byte, FLOP/byte", ylabel="GFLOP/s", title="Computations")
    axes.set_ylim(min(rate for _, rate in work.values()) / 4, peak * 3)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
