"""The pictures of 05_memory: the memory over one step, way by way, and the slots of a fused buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.memory.activation_memory import Sample
from xpulab.chapters.memory.fused_buffers import Slot
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


def slots(buffers: Sequence[Sequence[Slot]], sizes: Sequence[int]) -> None:
    """Where each gradient is in its buffer. sizes: of the buffers, in bytes."""
    figure, axes = plt.subplots(figsize=(8.0, 1.0 + 0.6 * len(buffers)))
    first = 0
    lanes = {}
    for number, (of_buffer, size) in enumerate(zip(buffers, sizes, strict=True), start=1):
        pieces = [(0.0, float(size), "", "idle")]
        for index, slot in enumerate(of_buffer, start=first):
            pieces.append((float(slot.start), float(slot.size), f"g{index}", "first" if index % 2 else "third"))
        lanes[f"buffer {number}"] = pieces
        first += len(of_buffer)
    figures.schedule(axes, lanes, "bytes from the beginning of the buffer; grey: filled with zeros")
    axes.set_title("Each gradient has its slot, and no two slots overlap", loc="left", fontsize=10)
    figure.tight_layout()
    plt.show()


def costs(peaks: Mapping[str, float], seconds: Mapping[str, float]) -> None:
    """For each way two bars: its peak in bytes, and the seconds of a step; lines at those of the first way."""
    _, panels = figures.new_panels(1, 2, height=2.6)
    sides = (
        ({name: peak / MIB for name, peak in peaks.items()}, "peak of a step (MiB)", "What each way needs", "first"),
        ({name: 1000 * seconds[name] for name in peaks}, "time of a step (ms)", "What it costs on this device", "second"),
    )
    for axes, (values, label, title, tone) in zip(panels[0], sides, strict=True):
        fill, hatch = figures.TONES[tone].fill, figures.TONES[tone].hatch
        axes.barh(range(len(values)), list(values.values()), color=fill, hatch=hatch, edgecolor="#555555", height=0.65)
        for row, value in enumerate(values.values()):
            axes.text(value, row, f" {value:.1f}", va="center", fontsize=8)
        axes.axvline(next(iter(values.values())), color="0.4", linestyle=":", linewidth=1.2)
        axes.set(xlabel=label, title=title, xlim=(0, 1.2 * max(values.values())))
        axes.title.set_fontsize(10)
        axes.set_yticks(range(len(values)), list(values) if tone == "first" else [], fontsize=8)
        axes.invert_yaxis()
        axes.grid(axis="y", visible=False)
    plt.show()
