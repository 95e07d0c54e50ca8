"""Pictures of chapter 04: the log-probabilities of two runs, a packed sequence and its mask, what DPO compares, and beta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import STYLES

_KINDS = ("chosen", "rejected")


def runs(logs: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    """The log-probabilities of both kinds of answers, a panel for each run, all on one scale.

    logs: by the run's title what DPOTrainer logged at each step.
    """
    _, axes = plt.subplots(1, len(logs), figsize=(7.0, 2.9), sharey=True, layout="constrained", squeeze=True)
    for panel, (title, log) in zip(np.atleast_1d(axes), logs.items(), strict=True):
        steps = range(1, len(log) + 1)
        for kind, style in zip(_KINDS, STYLES, strict=False):
            panel.plot(steps, [entry[f"logps/{kind}"] for entry in log], label=kind, **style)
        panel.set(xlabel="step", title=title)
    np.atleast_1d(axes)[0].set_ylabel("ln p of an answer (nats)")
    np.atleast_1d(axes)[0].legend(frameon=False)
    plt.show()


def betas(distances: Mapping[float, Sequence[float]], every: int) -> None:
    """How far the policy goes from the reference model with each beta: h on held-out pairs, by step.

    distances: by beta, the mean h in nats after each `every` steps.
    """
    _, axes = plt.subplots(figsize=(5.4, 2.9), layout="constrained")
    for (beta, values), style in zip(distances.items(), STYLES, strict=False):
        axes.plot(range(0, every * len(values) + 1, every), [0.0, *values], label=f"β = {beta:g}", **style)
    axes.set(xlabel="step", ylabel="h on held-out pairs (nats)", title="A large β keeps the policy near the reference model")
    axes.legend(frameon=False)
    plt.show()


def packed(example: Mapping[str, Any], tokens: Sequence[str]) -> None:
    """Which tokens each token of a packed sequence reads, with lines where the answers begin.

    example: what preprocess_preference_data returns, with "response_indexs" in a list. tokens: the text of each token.
    """
    start, middle, end = example["response_indexs"][0][:3]
    _, axes = plt.subplots(figsize=(7.0, 6.2), layout="constrained")
    reads = np.asarray(example["attention_mask"][0], dtype=float)
    axes.imshow(reads, cmap="Greys", vmin=0, vmax=1.6, aspect="auto")
    axes.set_xticks(range(end), tokens, rotation=90, fontsize=7)
    axes.set_yticks(range(end), tokens, fontsize=7)
    axes.set(xlabel="token that is read (dark)", ylabel="token that reads", title="The answers do not see each other")
    axes.grid(visible=False)
    for line in (start, middle):
        axes.axhline(line - 0.5, color="#c1440e", linewidth=1.0)
        axes.axvline(line - 0.5, color="#c1440e", linewidth=1.0)
    plt.show()


def what_dpo_compares(policy: Mapping[str, float], reference: Mapping[str, float]) -> None:
    """The log-probabilities of one pair under both models with the two gaps and their difference h.

    policy, reference: {"chosen": ln p, "rejected": ln p} in nats.
    """
    policy, reference = ({kind: round(logps[kind], 2) for kind in _KINDS} for logps in (policy, reference))  # as they are shown
    axes: Any = plt.subplots(figsize=(6.0, 3.0), layout="constrained")[1]
    gaps = {}
    for height, (name, logps) in enumerate({"policy": policy, "reference": reference}.items()):
        gaps[name] = logps["chosen"] - logps["rejected"]
        for kind, marker in zip(_KINDS, "os", strict=True):
            axes.plot(logps[kind], height, marker, color="#1b4d89" if kind == "chosen" else "#c1440e", markersize=9)
            axes.annotate(f"{kind}\n{logps[kind]:.2f}", (logps[kind], height), (0, 9), **_ABOVE)
        ends = {"xy": (logps["chosen"], height), "xytext": (logps["rejected"], height)}
        axes.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": "#444444", "shrinkA": 7, "shrinkB": 7})
        axes.annotate(f"gap {gaps[name]:+.2f}", (np.mean(list(logps.values())), height), (0, -14), **_ABOVE)
    h = gaps["policy"] - gaps["reference"]
    values = [*policy.values(), *reference.values()]
    room = 0.15 * (max(values) - min(values))
    axes.set(xlabel="ln p of the answer (nats)", ylim=(1.7, -0.7), xlim=(min(values) - room, max(values) + room))
    axes.set_yticks([0, 1], ["policy", "reference"])
    axes.set_title(f"h = {gaps['policy']:.2f} - ({gaps['reference']:.2f}) = {h:.2f} nats", fontsize=10)
    axes.grid(visible=False, axis="y")
    plt.show()


_ABOVE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
