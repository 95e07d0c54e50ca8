"""The pictures of 17_numerics: bits by operator, errors by length, and correlations of random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures
from xpulab.reference.bounds import BITS

HATCHES = ("", "///", "...", "xxx")

BOUND = 6.0
"""How many standard deviations a correlation may have."""


def bits(measured: Mapping[str, Mapping[str, int]]) -> None:
    """Bars: the bits that each operator keeps. measured: by type, by operator the bits. A line shows the bits of each type."""
    names = list(next(iter(measured.values())))
    axes = plt.subplots(figsize=(7.5, 0.3 * len(names) * max(1, len(measured) / 2) + 1.2))[1]
    height = 0.8 / len(measured)
    for index, (dtype, of_type) in enumerate(measured.items()):
        places = np.arange(len(names)) + index * height
        bars = axes.barh(places, [of_type[name] for name in names], height * 0.9, hatch=HATCHES[index % 4], label=dtype)
        axes.axvline(BITS[dtype], color=bars[0].get_facecolor(), linestyle=figures.STYLES[index % 4]["linestyle"])
    axes.set_yticks(np.arange(len(names)) + height * (len(measured) - 1) / 2, names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel="bits of the fraction that come back", title="What each operator keeps; lines: what the type has")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    plt.show()


def errors_by_length(lengths: Sequence[int], errors: Mapping[str, Sequence[float]], ceiling: Sequence[float]) -> None:
    """Curves: the largest error of products by the number of terms. ceiling: the bound of each length."""
    axes = figures.new_axes()
    for style, (name, values) in zip(figures.STYLES, errors.items(), strict=False):
        axes.loglog(lengths, values, marker="o", label=name, **style)
    axes.loglog(lengths, ceiling, color="0.5", label="bound")
    axes.set(
        xlabel="terms of each sum",
        ylabel="error / largest result",
        title="Errors grow with the length of a sum, and with lost bits",
    )
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    plt.show()


def correlations(draws: Mapping[str, Mapping[str, float]]) -> None:
    """Points: the correlations in standard deviations. draws: by name of a draw, by comparison the correlation."""
    axes = figures.new_axes()
    for marker, (name, of_draw) in zip("o^sx", draws.items(), strict=False):
        axes.semilogy(list(of_draw), list(of_draw.values()), marker, label=name)
    axes.axhline(BOUND, color="0.5", linestyle="--", label="bound")
    axes.set(ylabel="correlation / its deviation", title="A block that occurs twice shows at its distance")
    axes.tick_params(axis="x", labelrotation=70, labelsize=8)
    axes.legend()
    plt.show()
