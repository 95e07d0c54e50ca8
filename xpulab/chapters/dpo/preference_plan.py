"""How much chapter 04 trains with a model of a given size, how its success is judged, and what that needs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from xpulab import files
from xpulab.chapters.shared.training_size import TINY, Needs, Size, parameters_in
from xpulab.messages import N_

NEEDS = Needs(memory=52, other=1.0e9, disk=20, seconds=2.2)
"""Measured with SmolLM2-135M on the CPU, the peak while numpy computes gradients. The disk is estimated: four saved models of 4
to 5 bytes a parameter, with a tied head once more in some of them."""

_TOKENS = 16
"""Tokens of a long answer in the data."""
_LARGEST_LOGIT = 40.0
"""The size of the logits of pretrained models."""

WHY_NOT = N_("only the tiny model of this chapter, whose answers are known, takes enough steps for this")
"""Why another model skips a check."""


@dataclass(frozen=True)
class PreferencePlan(Size):
    """How to train one model with preferences.

    word_for_word: whether its answers can be compared with those of the data.
    pairs, heldout: how many of them are used. teaching_steps: of the start model.
    steps, batch, evaluate_every: of a run.
    learning_rate, warm_up_rate: of preference training and of the start model.
    loss_share: what the last losses stay below, as a share of ln 2. accuracy: what the share of pairs ranked correctly exceeds.
    margin: what the rise of the margin exceeds. logp_error: how far an answer's log-probability in float32 may be from that in
    double precision.
    """

    word_for_word: bool
    pairs: int
    heldout: int
    teaching_steps: int
    steps: int
    batch: int
    evaluate_every: int
    learning_rate: float
    warm_up_rate: float
    loss_share: float
    accuracy: float
    margin: float
    logp_error: float

    def data(self, folder: str) -> dict[str, str]:
        """The files of the pairs by split: those of the data, or their first lines in the given folder."""
        found = {}
        for split, count in (("train", self.pairs), ("heldout", self.heldout)):
            source = files.data("preferences", f"{split}.jsonl")
            found[split] = str(source)
            if not self.is_tiny:
                found[split] = f"{folder}/{split}.jsonl"
                with source.open(encoding="utf-8") as lines:
                    Path(found[split]).write_text("".join(islice(lines, count)), encoding="utf-8")
        return found


def plan_for(model: str, config: Any, level: str) -> PreferencePlan:
    """The plan for a model with this configuration at a level."""
    parameters = parameters_in(config)
    if parameters < TINY:
        longer = level == "standard"
        return PreferencePlan(
            parameters,
            NEEDS,
            model == "tiny-qwen2-sft",
            pairs=48,
            heldout=24,
            teaching_steps=30 if longer else 20,
            steps=24 if longer else 12,
            batch=12 if longer else 6,
            evaluate_every=4,
            learning_rate=1e-4 if longer else 2e-4,
            warm_up_rate=6e-3,
            loss_share=0.75,
            accuracy=0.99,
            margin=0.3,
            logp_error=1e-3,
        )
    return PreferencePlan(
        parameters,
        NEEDS,
        word_for_word=False,
        pairs=8,
        heldout=4,
        teaching_steps=2,
        steps=4,
        batch=2,
        evaluate_every=2,
        learning_rate=1e-5,
        warm_up_rate=1e-5,
        loss_share=0.95,
        accuracy=0.5,
        margin=0.05,
        logp_error=float(np.finfo("float32").eps) * config.num_hidden_layers * _LARGEST_LOGIT * _TOKENS,
    )
