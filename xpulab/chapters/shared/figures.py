"""One style for all figures: readable in black and white, axes with units, a title that states what the figure shows.

Plots: new_axes, new_panels, curves. Diagrams are drawn from the same few parts: diagram, box, arrow, grid_of, schedule.

A chapter writes its labels in English, once. Where XPULAB_LANG is zh each text is looked up when matplotlib gets it, in
xpulab/locale/zh/LC_MESSAGES/figures.po; what is not there stays as it is. The font has the characters of that file only: after
a change `tools/make_font.py` makes it again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import font_manager
from matplotlib.text import Text

from xpulab import files, messages

FAMILY = "xpulab Chinese"
FONT = ("fonts", "labels-zh.otf")
"""The name of the font's family, and where its file is below data/."""

STYLES: tuple[dict[str, Any], ...] = ({"linestyle": "-"}, {"linestyle": "--"}, {"linestyle": ":"}, {"linestyle": "-."})
"""Line styles, in the order in which curves use them, so that curves differ by more than colour."""


@dataclass(frozen=True)
class Tone:
    """How an area of a diagram is filled: its colour, the hatch that tells it from others without colour, its text's colour."""

    fill: str
    hatch: str = ""
    ink: str = "#1a1a1a"


TONES: dict[str, Tone] = {
    "plain": Tone("#ffffff"),
    "first": Tone("#cfe0f3"),
    "second": Tone("#f7d9c9", "///"),
    "third": Tone("#d5ead9", "..."),
    "fourth": Tone("#ddd3ea", "\\\\\\"),
    "strong": Tone("#1b4d89", ink="#ffffff"),
    "wrong": Tone("#f3c3c3", "xxx"),
    "idle": Tone("#eeeeee"),
}
"""The fills of diagrams, by name. "wrong" is for what must not be there, "idle" for time or space that is not used."""

OF_RANK = ("first", "second", "third", "fourth")
"""The tones of what comes from rank 0, 1, ...; the fifth rank has that of the first again."""

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


@cache
def chinese(label: str) -> str:
    """The label in Chinese; one that is not in the catalogue stays as it is."""
    known = messages.catalogue("zh", messages.FIGURES)
    if label in known:
        return known[label]
    for pattern, translated in _patterns():
        if values := pattern.fullmatch(label):
            return translated.format(*(chinese(value) for value in values.groups()))
    return label


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """The labels with values, those with the most letters first."""
    known = messages.catalogue("zh", messages.FIGURES)
    labels = sorted((label for label in known if "{}" in label), key=len, reverse=True)
    return [(re.compile("(.+?)".join(map(re.escape, label.split("{}"))), re.DOTALL), known[label]) for label in labels]


def _draw_in_chinese() -> None:
    """From now on matplotlib draws labels in Chinese, in the font of this repository beside its own."""
    font_manager.fontManager.addfont(str(files.data(*FONT)))
    plt.rcParams["font.family"] = ["DejaVu Sans", FAMILY]
    set_english = Text.set_text

    def set_text(self: Text, label: object) -> None:
        set_english(self, chinese(label) if isinstance(label, str) else label)

    Text.set_text = set_text  # type: ignore[method-assign, assignment]


if os.environ.get(messages.VARIABLE) == "zh":
    _draw_in_chinese()


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


def diagram(width: float, height: float, title: str) -> plt.Axes:
    """Empty axes for a diagram, without scales; one unit is the same length in both directions.

    width, height: what the axes hold, in units of your choice; the origin is the lower left corner.
    """
    figure, axes = plt.subplots(figsize=(8.0, 8.0 * height / width + 0.35))
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.set_title(title, loc="left")
    axes.axis("off")
    figure.tight_layout()
    return axes


def box(
    axes: plt.Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = "",
    tone: str = "plain",
    **font: Any,
) -> None:
    """A rectangle whose lower left corner is at (x, y), with its text in the middle, on a plain ground where there is a hatch.

    tone: a name of TONES. font: of the text, as matplotlib names it; fontsize is 9 points.
    """
    chosen = TONES[tone]
    # the hatch is drawn in a patch of its own, so that it is lighter than the edge
    axes.add_patch(plt.Rectangle((x, y), width, height, facecolor=chosen.fill, edgecolor="#9a9a9a", hatch=chosen.hatch, lw=0))
    axes.add_patch(plt.Rectangle((x, y), width, height, facecolor="none", edgecolor="#555555", lw=0.9, clip_on=False))
    ground = {"facecolor": chosen.fill, "edgecolor": "none", "pad": 1.0} if chosen.hatch and text else None
    whole: dict[str, Any] = {"fontsize": 9, "color": chosen.ink, "bbox": ground, **font}
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", **whole)


def arrow(axes: plt.Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", dashed: bool = False) -> None:
    """An arrow from start to end, (x, y) each, with its text above the middle."""
    style = {"arrowstyle": "-|>", "color": "#444444", "linewidth": 1.2, "linestyle": "--" if dashed else "-"}
    axes.annotate("", xy=end, xytext=start, arrowprops=style)
    if text:
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        axes.annotate(text, middle, xytext=(0, 3), textcoords="offset points", ha="center", va="bottom", fontsize=8)


def grid_of(axes: plt.Axes, values: np.ndarray, x: float, y: float, tones: np.ndarray | None = None, label: str = "") -> None:
    """The values of a matrix, [rows, columns], as unit squares with the text of each value; row 0 is on top.

    x, y: the lower left corner. tones: the name in TONES of each square, same shape; None for "plain". label: above them.
    """
    values = np.atleast_2d(values)
    rows, columns = values.shape
    for (row, column), value in np.ndenumerate(values):
        text = f"{value:g}" if isinstance(value, int | float | np.number) else str(value)
        tone = "plain" if tones is None else str(np.atleast_2d(tones)[row, column])
        box(axes, x + column, y + rows - 1 - row, 1, 1, text, tone)
    if label:
        axes.text(x + columns / 2, y + rows + 0.12, label, ha="center", va="bottom", fontsize=9)


def schedule(
    axes: plt.Axes,
    lanes: Mapping[str, Sequence[tuple[float, float, str, str]]],
    x: str,
) -> None:
    """What happens when, a lane for each rank, stream or file; the first lane is on top.

    lanes: for each label the pieces (start, duration, text, tone), in the unit of the axis. x: the label of the time axis.
    """
    height = 0.8
    for number, pieces in enumerate(lanes.values()):
        for start, duration, text, tone in pieces:
            box(axes, start, number - height / 2, duration, height, text, tone)
    ends = [start + duration for pieces in lanes.values() for start, duration, _, _ in pieces]
    axes.set(xlim=(0, max(ends, default=1.0)), ylim=(len(lanes) - 0.4, -0.6), xlabel=x)
    axes.set_yticks(range(len(lanes)), list(lanes))
    axes.grid(visible=False)
