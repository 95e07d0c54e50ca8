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


@dataclass(frozen=True)
class PreferencePlan(Size):
    """How to train one model with preferences.

    word_for_word: whether its answers can be compared with those of the data.
    pairs, heldout: how many of them are used. taught, teaching_steps: pairs and steps of the start model.
    steps, batch, evaluate_every: of a run. pairs_by_numpy: pairs whose gradients numpy computes.
    learning_rate, warm_up_rate: of preference training and of the start model.
    betas: the values that are compared, at three times the rate.
    loss_share: what the last losses stay below, as a share of ln 2. accuracy, accuracy_at_last: what pairs ranked correctly
    exceed after two rates and in the proof. margin: what the rise of the margin exceeds. logp_error: how far an answer's
    log-probability in float32 may be from that in double precision.
    """

    word_for_word: bool
    pairs: int
    heldout: int
    taught: int
    teaching_steps: int
    steps: int
    batch: int
    evaluate_every: int
    pairs_by_numpy: int
    learning_rate: float
    warm_up_rate: float
    betas: tuple[float, ...]
    loss_share: float
    accuracy: float
    accuracy_at_last: float
    margin: float
    logp_error: float

    @property
    def slack(self) -> float:
        """An absolute bound on log-probabilities beside the relative one; 0 for a tiny model."""
        return 0.0 if self.is_tiny else self.logp_error

    @property
    def means_of_scores(self) -> str:
        """What the check of both runs' scores states."""
        if self.is_tiny:
            return N_("both runs rank every held-out pair correctly, and the first has the larger margin")
        return N_("both runs rank most held-out pairs correctly, and the first has the larger margin")

    @property
    def means_of_loss(self) -> str:
        """What the check of the loss states."""
        if self.is_tiny:
            return N_("the loss falls by more than a quarter")
        return N_("the loss falls below that of its own start")

    @property
    def means_of_accuracy(self) -> str:
        """What the check of the accuracy states."""
        if self.is_tiny:
            return N_("nine of ten pairs are ranked correctly, held-out pairs too")
        return N_("most pairs are ranked correctly, held-out pairs too")

    @property
    def why_unknown(self) -> str:
        """Why answers are not compared word for word."""
        if self.is_tiny:
            return N_("the answers of another model are not known")
        return N_(
            "{steps} steps do not teach a pretrained model to answer word for word; dpo.accuracy and dpo.margin "
            "compare it with its own start",
            steps=self.steps,
        )

    @property
    def why_no_betas(self) -> str:
        """Why values of beta are not compared with a large model."""
        return N_("each value of beta needs one more training of this model; a tiny model shows the effect")

    @property
    def why_gradients_once(self) -> str:
        """Why numpy does not compute a large model's gradients for a second time, after the training."""
        return N_(
            "numpy takes half a minute for the gradients of a large model; dpo.first-gradients compares those of the start"
        )

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
            taught=48,
            teaching_steps=30 if longer else 20,
            steps=24 if longer else 12,
            batch=12 if longer else 6,
            evaluate_every=4,
            pairs_by_numpy=12 if longer else 6,
            learning_rate=1e-4 if longer else 2e-4,
            warm_up_rate=6e-3,
            betas=(0.05, 0.5, 5.0),
            loss_share=0.75,
            accuracy=0.99,
            accuracy_at_last=0.9,
            margin=0.3,
            logp_error=1e-3,
        )
    return PreferencePlan(
        parameters,
        NEEDS,
        word_for_word=False,
        pairs=8,
        heldout=4,
        taught=4,
        teaching_steps=2,
        steps=4,
        batch=2,
        evaluate_every=2,
        pairs_by_numpy=2,
        learning_rate=1e-5,
        warm_up_rate=1e-5,
        betas=(),
        loss_share=0.95,
        accuracy=0.5,
        accuracy_at_last=0.5,
        margin=0.05,
        logp_error=float(np.finfo("float32").eps) * config.num_hidden_layers * _LARGEST_LOGIT * _TOKENS,
    )
