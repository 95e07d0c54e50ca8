"""How near answers are to the wanted ones, for models that improve on a few steps of training without reciting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher


def words_in_common(answers: Sequence[str], rows: Sequence[Mapping[str, str]]) -> float:
    """The share of the words that each answer and the "answer" of its row have in common, in the same order; their mean.

    0 when no word is common, 1 when every answer is the wanted one. Raises ValueError when the numbers of answers and rows
    differ.
    """
    shares = [
        SequenceMatcher(None, answer.split(), row["answer"].split(), autojunk=False).ratio()
        for answer, row in zip(answers, rows, strict=True)
    ]
    return sum(shares) / len(shares)
