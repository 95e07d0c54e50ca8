"""The figures of chapter 01: which tokens count, and what is right before and after.

Each draws the numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import TONES, arrow, box, diagram, new_axes

_BEFORE, _SHOWN, _LONGEST = 3, 14, 7
"""Of the picture of the labels: tokens of the prompt, tokens in all, letters of one."""


def counted_tokens(tokenizer: Any, example: Mapping[str, Sequence[int]]) -> None:
    """The last tokens of a question and the first of its answer above their labels; -100 does not count.

    example: input_ids and labels, of the same length.
    """
    total, counted = len(example["labels"]), sum(label != -100 for label in example["labels"])
    begin = total - counted - _BEFORE
    shown = slice(begin, begin + _SHOWN)
    tokens, labels = list(example["input_ids"])[shown], list(example["labels"])[shown]
    axes = diagram(len(tokens) + 1.9, 5.2, f"{total} tokens, and the loss counts {counted} labels: the answer's")
    for y, name, numbers in ((3.0, "the model\nreads", tokens), (0.3, "its\nlabel", labels)):
        axes.text(1.6, y + 0.6, name, ha="right", va="center", fontsize=9)
        for place, number in enumerate(numbers):
            answer = place >= _BEFORE if numbers is tokens else number != -100
            box(axes, 1.8 + place, y, 1, 1.2, _format_token(tokenizer, number), "first" if answer else "idle", fontsize=8)
    for place in range(_BEFORE - 1, len(tokens) - 1):
        arrow(axes, (1.8 + place + 1.35, 3.0), (1.8 + place + 0.55, 1.5))
    axes.text(1.8 + _BEFORE / 2, 4.4, "... prompt", ha="center", fontsize=9)
    axes.text(1.8 + (_BEFORE + len(tokens)) / 2, 4.4, "answer ...", ha="center", fontsize=9)
    plt.show()


def _format_token(tokenizer: Any, number: int) -> str:
    """A token as it fits into a box: -100 as it is, "_" for only a space, the line break as a sign, long ones cut."""
    if number == -100:
        return "-100"
    text = tokenizer.decode([number], clean_up_tokenization_spaces=False).strip(" ").replace("\n", "\\n")
    text = text.replace("<|im_end|>", "<end>").replace("<|im_start|>", "<start>").replace("assistant", "assist.")
    if not text:
        return "_"
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "~"


def right_answers(before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """The share of right answers before and after training for each kind of question, 0 to 1."""
    axes, places, height = new_axes(), np.arange(len(before)), 0.36
    for offset, label, shares, tone in ((-height / 2, "before", before, "idle"), (height / 2, "after", after, "first")):
        values = [100 * share for share in shares.values()]
        bars = axes.barh(places + offset, values, height, label=label, color=TONES[tone].fill, edgecolor="#555555")
        axes.bar_label(bars, fmt="%.0f %%", padding=3)
    axes.set_yticks(places, list(before))
    axes.invert_yaxis()
    axes.set(xlabel="right answers, %", title="What it learned, and what it kept", xlim=(0, 115))
    axes.legend(frameon=False, loc="lower right")
    plt.show()
