"""The pictures of 05_memory: the memory over one step, way by way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.memory.activation_memory import Sample
from xpulab.chapters.shared import figures

PARTS = {"weights": "first", "optimizer": "third", "gradients": "fourth", "activations": "second"}
"""By part of the memory its tone, from the bottom of the picture to its top."""

MIB = 2.0**20


def over_one_step(ways: Mapping[str, Sequence[Sample]], title: str) -> None:
    """A panel for each way: what is on the device, part above part, from the beginning of a step to its end."""
    figure, axes = plt.subplots(1, len(ways), figsize=(8.0, 3.2), sharey=True, squeeze=False, layout="constrained")
    for panel, (name, samples) in zip(axes[0], ways.items(), strict=True):
        _draw(panel, samples)
        peak = max(each.total for each in samples) / MIB
        panel.axhline(peak, color="0.4", linestyle=":", linewidth=1.2)
        panel.set_title(f"{name}: peak {peak:.1f} MiB", fontsize=9)
        panel.set_xlabel("tensors saved and used, in order")
        panel.set_ylim(bottom=0)
    axes[0][0].set_ylabel("MiB on the device")
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    plt.show()


def _draw(panel: plt.Axes, samples: Sequence[Sample]) -> None:
    samples = [*samples, *([samples[-1]] * max(1, len(samples) // 20))]  # the last one has a width too
    below, places = np.zeros(len(samples)), np.arange(len(samples))
    for part, tone in PARTS.items():
        size = np.array([getattr(each, part) for each in samples]) / MIB
        chosen = figures.TONES[tone]
        panel.fill_between(
            places,
            below,
            below + size,
            step="post",
            facecolor=chosen.fill,
            hatch=chosen.hatch,
            edgecolor="#666666",
            linewidth=0.4,
            label=part,
        )
        below = below + size
