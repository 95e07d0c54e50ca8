"""The pictures of 18_tensors: which elements of one memory a view contains, and where gradients of a repeated index go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import arrow, box, diagram


def places_in_memory(views: Mapping[str, np.ndarray], count: int) -> None:
    """Draw the memory of a tensor, a row of squares for each view; the elements that the view contains are filled.

    views: for each text the positions of its elements in memory. count: how many elements the memory has.
    """
    height = 1.5
    axes = diagram(count + 8.2, height * len(views) + 0.4, "Views of one memory: filled squares belong to the view")
    for number, (text, positions) in enumerate(views.items()):
        bottom = height * (len(views) - 1 - number) + 0.3
        axes.text(7.5, bottom + 0.5, text, ha="right", va="center", fontsize=9)
        for place in range(count):
            tone = "first" if place in positions else "idle"
            box(axes, 8 + place, bottom, 1, 1, str(place), tone)
    plt.show()


def paths_of_gradients(rows: Sequence[int], gradient: Sequence[float]) -> None:
    """Draw which rows of a tensor were read, and the gradient of each: the number of times it was read.

    rows: the rows that were read, in order. gradient: of each row of the tensor.
    """
    axes = diagram(12, 1.2 * max(len(rows), len(gradient)) + 0.8, "A row that is read twice gets the sum of two gradients")
    top = 1.2 * max(len(rows), len(gradient)) - 0.8
    for row, slope in enumerate(gradient):
        tone = "strong" if slope > 1 else "first" if slope else "idle"
        box(axes, 0.2, top - 1.2 * row, 4.2, 0.8, f"row {row} of x, gradient {slope:g}", tone)
    for place, row in enumerate(rows):
        box(axes, 7.4, top - 1.2 * place, 4.2, 0.8, f"row {place} of the result", "plain")
        arrow(axes, (7.3, top - 1.2 * place + 0.4), (4.5, top - 1.2 * row + 0.4))
    plt.show()
