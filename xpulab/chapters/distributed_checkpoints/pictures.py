"""The picture of 15_distributed_checkpoints: which rank holds which slice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures

Place = tuple[slice, ...]
"""The position of a slice in a tensor: rows and columns."""

_TENSORS = ("embed.weight", "widen.weight", "narrow.weight")
_SCALE, _GAP, _LEFT, _ROW = 0.42, 2.2, 3.4, 7.4


def slices(
    state: Mapping[str, np.ndarray],
    layouts: Mapping[str, tuple[Callable[[str, np.ndarray], str], int]],
    position: Callable[[tuple[int, ...], str, int, int], Place],
) -> None:
    """Draw the matrices of the chapter, a row of the picture for each layout, with the rank that holds each slice.

    state: the whole tensors by name. layouts: by label the function that says how a tensor is split, and the number of ranks.
    position: position(shape, way, rank, ranks) is the slice of a rank.
    """
    shapes = [state[name].shape for name in _TENSORS]
    width = _LEFT + sum(columns * _SCALE + _GAP for _, columns in shapes)
    axes = figures.diagram(width, _ROW * len(layouts) - 0.2, "The number in a slice is the rank that holds it")
    for number, (label, (way, ranks)) in enumerate(layouts.items()):
        bottom, x = _ROW * (len(layouts) - 1 - number) + 0.2, _LEFT
        axes.text(0, bottom + 2.8, label.replace(" on ", "\non "), va="center", fontsize=10, fontweight="bold")
        for name, (rows, columns) in zip(_TENSORS, shapes, strict=True):
            kind = way(name, state[name])
            for rank in range(ranks):
                _slice(axes, x, bottom, rows, position((rows, columns), kind, rank, ranks), rank)
            axes.text(x, bottom + rows * _SCALE + 0.2, f"{name} [{rows}, {columns}]\n{kind}", va="bottom", fontsize=8.5)
            if number + 1 < len(layouts):
                figures.arrow(axes, (x + columns * _SCALE / 2, bottom - 0.2), (x + columns * _SCALE / 2, bottom - 0.9))
            x += columns * _SCALE + _GAP
    plt.show()


def _slice(axes: plt.Axes, x: float, bottom: float, rows: int, place: Place, rank: int) -> None:
    """One slice of a matrix of so many rows whose lower left corner is at (x, bottom); row 0 is on top."""
    down, across = place
    figures.box(
        axes,
        x + across.start * _SCALE,
        bottom + (rows - down.stop) * _SCALE,
        (across.stop - across.start) * _SCALE,
        (down.stop - down.start) * _SCALE,
        str(rank),
        figures.OF_RANK[rank % len(figures.OF_RANK)],
    )
