"""The picture of chapter 19: the losses of both packages."""

from __future__ import annotations

from collections.abc import Sequence

from xpulab.chapters.paddleformers import successor
from xpulab.chapters.shared.figures import curves


def losses(own: Sequence[float], of_paddlenlp: Sequence[float]) -> None:
    """The loss of each step of both packages, from the same weights and rows."""
    curves(
        {successor.NAME: own, "PaddleNLP": of_paddlenlp},
        x="optimizer step",
        y="loss (nats per token)",
        title="Both packages make the same steps from the same weights",
    )
