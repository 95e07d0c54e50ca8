"""The pictures of 16_zero_cost_checkpoints: what a plain save costs, and what overlaps when a thread writes."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared import figures

Event = tuple[str, str, float, float]
"""Lane, text, start and end in seconds."""

_LANES = {"training": "first", "copy": "strong", "background write": "third", "plain save": "second"}
_CHARACTERS = 80
"""How many characters fit into the width of the timeline."""
_BESIDE = "plain save"
"""The lane whose bars are too narrow for their texts, which stand on the right of them."""


def stalls(times: Sequence[tuple[float, float]], megabytes: float) -> None:
    """Draw for each step, counted from 1, the seconds of training and, on top, those in which it waits for a save."""
    training, waiting = (1000 * np.array(each) for each in zip(*times, strict=True))
    steps = np.arange(1, len(times) + 1)
    axes = figures.new_axes()
    axes.bar(steps, training, 0.7, color="#cfe0f3", edgecolor="#555555", label="forward, backward, update")
    axes.bar(
        steps, waiting, 0.7, bottom=training, color="#f7d9c9", edgecolor="#555555", hatch="///", label="waits for the save"
    )
    axes.set(xticks=steps, xlabel="step", ylabel="time (ms)")
    axes.set_title(f"A plain save of {megabytes:.1f} MB after every second step stops the loop")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.18), ncols=2)
    plt.show()


def timeline(events: Sequence[Event]) -> None:
    """Draw a lane each for training, copies, the background write and plain saves, from the first event on, in milliseconds."""
    start = min(begin for _, _, begin, _ in events)
    lanes: dict[str, list[tuple[float, float, str, str]]] = {lane: [] for lane in _LANES}
    for lane, text, begin, end in events:
        lanes[lane].append((1000 * (begin - start), 1000 * (end - begin), text, _LANES[lane]))
    longest = max(end - start for _, _, _, end in events) * 1000
    readable = {
        lane: [
            (begin, long, text if lane != _BESIDE and long > longest * len(text) / _CHARACTERS else "", tone)
            for begin, long, text, tone in pieces
        ]
        for lane, pieces in lanes.items()
    }
    axes = plt.subplots(figsize=(9.0, 2.8), layout="constrained")[1]
    figures.schedule(axes, readable, x="time (ms)")
    for begin, long, text, _ in lanes[_BESIDE]:
        axes.text(begin + long, list(lanes).index(_BESIDE), f" {text}", ha="left", va="center", fontsize=9)
    axes.set_title("Training continues while a thread writes; a plain save stops it")
    plt.show()
