"""The pictures of chapter 02: the shift of the labels, what padding and mask look like, the loss of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from xpulab.chapters.shared.figures import TONES, arrow, box, curves, diagram

_BEFORE, _SHOWN = 2, 16
"""Tokens of the question that the picture of the shift shows, and tokens in all: as many as can be read in one row."""


def label_shift(tokenizer: Any, example: Mapping[str, Sequence[int]]) -> None:
    """The last tokens of a question and its answer above their labels, with the arrows of the shift.

    example: input_ids and labels, of the same length; a label of -100 does not count.
    """
    begin = max(0, next(place for place, label in enumerate(example["labels"]) if label >= 0) + 1 - _BEFORE)
    shown = slice(begin, begin + _SHOWN)
    tokens, labels = list(example["input_ids"])[shown], list(example["labels"])[shown]
    width, first = len(tokens), next(place for place, label in enumerate(labels) if label >= 0)
    axes = diagram(width + 1.9, 5.2, "The label of each position is the token of the next one; -100 does not count")
    for y, name, numbers in ((3.0, "the model\nreads", tokens), (0.3, "its\nlabel", labels)):
        axes.text(1.6, y + 0.6, name, ha="right", va="center", fontsize=9)
        for place, number in enumerate(numbers):
            answer = place > first if numbers is tokens else number >= 0
            tone = "first" if answer else "plain" if numbers is tokens else "idle"
            box(axes, 1.8 + place, y, 1, 1.2, _format_token(tokenizer, number), tone, fontsize=8, linespacing=1.5)
    for place in range(first, width - 1):
        arrow(axes, (1.8 + place + 1.35, 3.0), (1.8 + place + 0.55, 1.5))
    axes.text(1.8 + (first + 1) / 2, 4.4, "question", ha="center", fontsize=9)
    axes.text(1.8 + (first + 1 + width) / 2, 4.4, "answer", ha="center", fontsize=9)
    plt.show()


def padded_batch(batch: Mapping[str, np.ndarray]) -> None:
    """A batch as the model gets it, and which tokens each token of its shortest example may read.

    batch: input_ids, attention_mask and labels, arrays of [examples, length].
    """
    mask, labels = np.asarray(batch["attention_mask"]), np.asarray(batch["labels"])
    kind = mask + (mask * np.cumsum(labels >= 0, axis=1) > 0)
    shortest = int(mask.sum(axis=1).argmin())
    may_read = np.tril(np.ones((mask.shape[1],) * 2)) * mask[shortest]
    _, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.6), width_ratios=(1.25, 1), layout="constrained")
    names = ("padding", "question", "answer")
    fills = ("#f2f2f2", TONES["first"].fill, TONES["strong"].fill)
    left.imshow(kind, cmap=ListedColormap(fills), vmin=0, vmax=2, aspect="auto", interpolation="none")
    left.set(xlabel="position (token)", ylabel="example", yticks=range(len(kind)))
    left.set_title("One row per example, padded on the left", loc="left", fontsize=10)
    patches = [Patch(facecolor=fill, edgecolor="#555555", label=name) for name, fill in zip(names, fills, strict=True)]
    left.legend(handles=patches, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=3, frameon=False)
    right.imshow(may_read, cmap=ListedColormap(("#f2f2f2", TONES["strong"].fill)), interpolation="none")
    right.set(xlabel="position that is read", ylabel="position that reads")
    right.set_title(f"What each token of example {shortest} may read", loc="left", fontsize=10)
    for axes in (left, right):
        axes.grid(visible=False)
        axes.set_yticks(np.arange(len(kind) if axes is left else len(may_read)) + 0.5, minor=True)
    left.grid(which="minor", axis="y", color="white", linewidth=2)
    left.tick_params(which="minor", length=0)
    right.tick_params(which="minor", length=0)
    plt.show()


def loss_curve(losses: Sequence[float], guess: float) -> None:
    """The training loss of each step, next to that of a model that gives each token the same probability, `guess`."""
    untrained, learned = losses[0] > 0.9 * guess, losses[-1] < 0.1 * losses[0]
    curves(
        {"training loss": losses, "a uniform guess, ln V": [guess] * len(losses)},
        x="optimizer step",
        y="loss (nats per token)",
        log=True,
        title="The loss falls from a uniform guess to almost zero" if untrained and learned else "The loss falls",
    )


def rates(losses: Mapping[float, Sequence[float]]) -> None:
    """The training loss of a few steps for each learning rate, the lowest rate first."""
    names = (" (too low)", " (as in the lesson)", " (too high)")
    series = {f"rate {rate:g}{name}": losses[rate] for rate, name in zip(sorted(losses), names, strict=True)}
    curves(series, x="optimizer step", y="loss (nats per token)", title="A rate can be too low, and too high")


def _format_token(tokenizer: Any, number: int) -> str:
    """The token above its number; a leading space is shown as "_", as the tokenizer keeps it."""
    if number < 0:
        return str(number)
    text = tokenizer.convert_ids_to_tokens(number).replace("Ġ", "_").replace("Ċ", "\\n")
    return f"{'<end>' if text.startswith('<|') else text}\n{number}"
