"""The figures of chapter 20: three templates, the tokens that count, packed rows and their mask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

from xpulab.chapters.shared.figures import TONES, box, diagram

_COLUMN, _ACROSS, _LONGEST = 43, 13, 8
"""Letters in a line of a template's column, tokens in a row of the mask's picture, letters of a token there."""


def templates(pieces: Mapping[str, Sequence[tuple[str, bool]]]) -> None:
    """The text that each template writes, in columns; what counts in the loss has a dark ground.

    pieces: for each template (text, whether it counts).
    """
    columns = {name: list(_lines(each)) for name, each in pieces.items()}
    height = max(map(len, columns.values()))
    letter, line = 0.0585, 0.15  # inches, of a fixed font of 7 points
    figure = plt.figure(figsize=(len(columns) * letter * (_COLUMN + 2), line * (height + 2)))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, len(columns) * (_COLUMN + 2)), ylim=(height + 0.5, -1.5))
    axes.axis("off")
    for number, (name, lines) in enumerate(columns.items()):
        left = number * (_COLUMN + 2) + 0.5
        axes.text(left, -0.8, name, fontsize=9, weight="bold", va="center")
        for row, runs in enumerate(lines):
            for start, text, counts in runs:
                tone = TONES["strong" if counts else "plain"]
                ground = plt.Rectangle((left + start, row - 0.5), len(text), 1, facecolor=tone.fill, lw=0)
                axes.add_patch(ground)
                axes.text(left + start, row, text, fontsize=7, family="monospace", color=tone.ink, va="center")
    plt.show()


def _lines(pieces: Iterable[tuple[str, bool]]) -> Iterable[list[tuple[int, str, bool]]]:
    """The lines of a text in pieces, each a list of (first letter's place, text, whether it counts)."""
    line: list[tuple[int, str, bool]] = []
    place = 0
    for text, counts in pieces:
        for number, part in enumerate(text.split("\n")):
            if number:
                yield line
                line, place = [], 0
            while part:
                taken, part = part[: _COLUMN - place], part[_COLUMN - place :]
                line.append((place, taken, counts))
                place += len(taken)
                if part:
                    yield line
                    line, place = [], 0
    yield line


def counted_tokens(tokenizer: Any, ids: Sequence[int], counts: Sequence[bool]) -> None:
    """The tokens of a conversation in rows; those that count in the loss are dark."""
    rows = -(-len(ids) // _ACROSS)
    axes = diagram(
        _ACROSS, rows, f"{len(ids)} tokens; the loss counts {sum(counts)}: what the assistant says, to its end token"
    )
    for place, (number, counted) in enumerate(zip(ids, counts, strict=True)):
        row, column = divmod(place, _ACROSS)
        box(axes, column, rows - 1 - row, 1, 0.9, _shown(tokenizer, number), "strong" if counted else "plain", fontsize=7)
    plt.show()


def _shown(tokenizer: Any, number: int) -> str:
    """A token as it fits into a box."""
    text = tokenizer.decode([number], clean_up_tokenization_spaces=False).replace("\n", "\\n").replace(" ", "_")
    text = text.replace("<|im_end|>", "<end>").replace("<|im_start|>", "<start>")
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "~"


def packed(single: Sequence[int], packs: Sequence[Sequence[int]], mask: np.ndarray, length: int) -> None:
    """Left: rows with one example each and packed rows; right: what each token of a packed row may read.

    single: the lengths of a batch's examples. packs: for each packed row those of its examples. mask: [tokens, tokens],
    of the first packed row. length: tokens of a packed row.
    """
    _, (left, right) = plt.subplots(1, 2, figsize=(8.0, 3.6), width_ratios=(1.5, 1), layout="constrained")
    rows = [([size], max(single)) for size in single] + [(list(pack), length) for pack in packs]
    for row, (examples, width) in enumerate(rows):
        start = 0
        for number, size in enumerate(examples):
            box(left, start, row - 0.4, size, 0.8, "", ("first", "third")[number % 2])
            start += size
        box(left, start, row - 0.4, width - start, 0.8, "", "wrong")
    left.set(xlim=(0, length), ylim=(len(rows) - 0.4, -0.6), xlabel="tokens", yticks=[])
    left.set_title("One example in a row, above; packed, below; crossed: padding", loc="left", fontsize=10)
    right.imshow(mask, cmap=ListedColormap(("#f2f2f2", TONES["strong"].fill)), interpolation="none")
    right.set(xlabel="position that is read", ylabel="position that reads")
    right.set_title("Each example reads itself alone", loc="left", fontsize=10)
    for axes in (left, right):
        axes.grid(visible=False)
    plt.show()
