"""The figures of chapter 01: which tokens count, padding and packing, the loss, what is right before and after.

Each draws the numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import STYLES, TONES, box, diagram, new_axes, new_panels

_LINE = {"color": "#1b4d89", **STYLES[0]}


def counted_tokens(labels: Sequence[int]) -> None:
    """The labels of one example as a bar: those of the prompt are -100, those of the answer count."""
    total, counted = len(labels), sum(label != -100 for label in labels)
    axes = diagram(total, 9, f"{total} tokens, and the loss counts {counted} of them")
    prompt = total - counted
    box(axes, 0, 2, prompt, 4, f"prompt: {prompt} tokens, label -100", "idle")
    box(axes, prompt, 2, counted, 4, f"answer: {counted}", "first")
    plt.show()


def padding_and_packing(lengths: Sequence[int], size: int) -> None:
    """How many tokens a step computes for nothing: batches of `size` examples in their order, sorted, and packed in a row.

    lengths: the tokens of each example.
    """
    _, panels = new_panels(1, 2, height=2.6)
    axes = panels[0, 0]
    counts = np.bincount(lengths)
    shown = range(min(lengths), max(lengths) + 1)
    axes.bar(shown, counts[min(lengths) :], color=TONES["first"].fill, edgecolor="#555555")
    axes.set(xlabel="tokens", ylabel="examples", title="How long the examples are")
    axes = panels[0, 1]
    shares = {"in their order": padded_share(lengths, size), "sorted": padded_share(sorted(lengths), size), "packed": 0.0}
    bars = axes.barh(list(shares), [100 * share for share in shares.values()], color=TONES["second"].fill, edgecolor="#555555")
    axes.bar_label(bars, fmt="%.0f %%", padding=3)
    axes.invert_yaxis()
    axes.set(xlabel="padding, % of the computed tokens", title="What padding costs", xlim=(0, 100))
    plt.show()


def padded_share(lengths: Sequence[int], size: int) -> float:
    """The share of padding when batches of `size` examples, in this order, are filled up to their longest."""
    groups = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    return 1 - sum(lengths) / sum(len(group) * max(group) for group in groups)


def loss_curve(losses: Sequence[float]) -> None:
    """The loss of each step, from step 1."""
    axes = new_axes()
    axes.plot(range(1, len(losses) + 1), losses, marker="o", **_LINE)
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="loss, nats per token", title="A few steps are enough for a handful of facts")
    plt.show()


def right_answers(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """The share of right answers before and after training for each kind of question, 0 to 1."""
    axes, places, height = new_axes(), np.arange(len(before)), 0.36
    for offset, label, shares, tone in ((-height / 2, "before", before, "idle"), (height / 2, "after", after, "first")):
        values = [100 * share for share in shares.values()]
        bars = axes.barh(places + offset, values, height, label=label, color=TONES[tone].fill, edgecolor="#555555")
        axes.bar_label(bars, fmt="%.0f %%", padding=3)
    axes.set_yticks(places, list(before))
    axes.invert_yaxis()
    axes.set(xlabel="right answers, %", title="New facts were learned, some old ones forgotten", xlim=(0, 115))
    axes.legend(frameon=False, loc="lower right")
    plt.show()
