"""One style for all figures: readable in black and white, axes with units, a title that states what the figure shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

STYLES: tuple[dict[str, Any], ...] = ({"linestyle": "-"}, {"linestyle": "--"}, {"linestyle": ":"}, {"linestyle": "-."})
"""Line styles, in the order in which curves use them, so that curves differ by more than colour."""

plt.rcParams.update(
    {
        "figure.figsize": (7.0, 3.2),
        "figure.dpi": 96,
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": plt.cycler(color=["#1b4d89", "#c1440e", "#3a7d44", "#6b4c9a"]),
        "grid.alpha": 0.3,
        "lines.linewidth": 1.8,
        "font.size": 10,
    }
)


def new_axes() -> plt.Axes:
    """Empty axes in this style."""
    return plt.subplots()[1]


def new_panels(rows: int, columns: int = 1, height: float = 1.3) -> tuple[plt.Figure, np.ndarray]:
    """A figure with a grid of empty axes, each row `height` inches high; the axes as an array, [rows, columns]."""
    return plt.subplots(rows, columns, figsize=(7.0, height * rows), squeeze=False, layout="constrained")


def curves(series: Mapping[str, Sequence[float]], *, x: str, y: str, title: str, log: bool = False) -> None:
    """Show each series over its index, counted from 1, with a legend when there are several.

    x, y: the labels of the axes, with units. log: a logarithmic y axis.
    """
    axes = new_axes()
    for (label, values), style in zip(series.items(), cycle(STYLES)):
        axes.plot(range(1, len(values) + 1), values, label=label, **style)
    if log:
        axes.set_yscale("log")
    axes.set(xlabel=x, ylabel=y, title=title)
    if len(series) > 1:
        axes.legend(frameon=False)
    plt.show()
