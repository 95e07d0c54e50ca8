"""The chapter's model in numpy: weights and gradients by the names that the reference implementation reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from xpulab import reference
from xpulab.chapters.paddleformers import same_model

HEAD = "lm_head.weight"
"""The one linear weight that the successor keeps as [out, in]; the others it transposes while it loads."""


def config() -> SimpleNamespace:
    """The model's config as an object."""
    return SimpleNamespace(**same_model.config())


def renamed(stored: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of the successor's state dict by the names of the reference implementation, in double precision."""
    values = {name: value.T if name == HEAD else value for name, value in stored.items()}
    return {
        f"llama.{name[6:]}" if name.startswith("model.") else name: value.astype("float64") for name, value in values.items()
    }


def weights(network: Any) -> dict[str, np.ndarray]:
    """A copy of a network's weights."""
    return renamed({name: value.numpy() for name, value in network.named_parameters()})


def gradients(network: Any) -> dict[str, np.ndarray]:
    """A copy of a network's gradients."""
    return renamed({name: value.grad.numpy() for name, value in network.named_parameters()})


def logits(of: Mapping[str, np.ndarray], tokens: Sequence[int]) -> np.ndarray:
    """The logits after the last of these tokens, [vocabulary]."""
    batch = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), int)}
    return reference.logits(of, config(), batch)[0, -1]


def losses(
    of: Mapping[str, np.ndarray], batches: Sequence[Mapping[str, np.ndarray]], settings: Mapping[str, Any]
) -> list[float]:
    """The loss before each step of AdamW, as the trainer makes them: gradients clipped at 1, no decay of norms."""
    decayed = frozenset(name for name in of if "norm" not in name)
    optimizer = reference.AdamW(0.9, 0.999, 1e-8, settings["weight_decay"], 1.0, decayed)
    found, now = [], dict(of)
    for batch in batches:
        loss, slopes = reference.loss_and_gradients(now, config(), batch, same_model.IGNORED)
        found.append(loss)
        now = optimizer.step(now, slopes, settings["learning_rate"])
    return found
