"""Pictures of chapter 04: the log-probabilities of two runs, a packed sequence and its mask, what DPO compares, and beta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import STYLES, TONES

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

    distances: by beta, the mean h in nats after each `every` steps; without any there is no figure.
    """
    if not distances:
        return
    _, panel = plt.subplots(figsize=(5.4, 2.9), layout="constrained")
    for (beta, values), style in zip(distances.items(), STYLES, strict=False):
        panel.plot([0, *(every * count for count in range(1, len(values) + 1))], [0.0, *values], label=f"β = {beta:g}", **style)
    panel.set(xlabel="step", ylabel="h on held-out pairs (nats)", title="A large β keeps the policy near the reference model")
    panel.legend(frameon=False)
    plt.show()


def packed(example: Mapping[str, Any], tokens: Sequence[str]) -> None:
    """The position of each token of a packed sequence, and which tokens each of them reads.

    example: what preprocess_preference_data returns, with "response_indexs" in a list. tokens: the text of each token.
    """
    start, middle, end = example["response_indexs"][0][:3]
    parts = {"question": (0, start, "plain"), "chosen": (start, middle, "first"), "rejected": (middle, end, "second")}
    _, (above, below) = plt.subplots(
        2, 1, figsize=(7.0, 7.6), height_ratios=(1, 4), sharex=True, layout="constrained", squeeze=True
    )
    for name, (first, last, tone) in parts.items():
        above.bar(
            range(first, last),
            [position + 0.3 for position in example["position_ids"][first:last]],
            width=0.9,
            color=TONES[tone].fill,
            hatch=TONES[tone].hatch,
            edgecolor="#555555",
            linewidth=0.6,
            label=name,
        )
    above.set(ylabel="position", title="Both answers begin at the same position, and do not see each other")
    above.legend(frameon=False, ncols=3, loc="upper left", fontsize=8)
    reads = np.asarray(example["attention_mask"][0], dtype=float)
    below.imshow(reads, cmap="Greys", vmin=0, vmax=1.6, aspect="auto")
    below.set_xticks(range(end), tokens, rotation=90, fontsize=7)
    below.set_yticks(range(end), tokens, fontsize=7)
    below.set(xlabel="token that is read (dark)", ylabel="token that reads")
    below.grid(visible=False)
    for line in (start, middle):
        below.axhline(line - 0.5, color="#c1440e", linewidth=1.0)
        below.axvline(line - 0.5, color="#c1440e", linewidth=1.0)
    plt.show()


def what_dpo_compares(policy: Mapping[str, float], reference: Mapping[str, float], beta: float) -> None:
    """The log-probabilities of one pair under both models with the two gaps, and the loss of their difference h.

    policy, reference: {"chosen": ln p, "rejected": ln p} in nats.
    """
    policy, reference = ({kind: round(logps[kind], 2) for kind in _KINDS} for logps in (policy, reference))  # as they are shown
    _, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.0), width_ratios=(3, 2), layout="constrained")
    gaps = {}
    for height, (name, logps) in enumerate({"policy": policy, "reference": reference}.items()):
        gaps[name] = logps["chosen"] - logps["rejected"]
        for kind, marker in zip(_KINDS, "os", strict=True):
            left.plot(logps[kind], height, marker, color="#1b4d89" if kind == "chosen" else "#c1440e", markersize=9)
            left.annotate(f"{kind}\n{logps[kind]:.2f}", (logps[kind], height), (0, 9), **_ABOVE)
        ends = {"xy": (logps["chosen"], height), "xytext": (logps["rejected"], height)}
        left.annotate("", **ends, arrowprops={"arrowstyle": "->", "color": "#444444", "shrinkA": 7, "shrinkB": 7})
        left.annotate(f"gap {gaps[name]:+.2f}", (np.mean(list(logps.values())), height), (0, -14), **_ABOVE)
    h = gaps["policy"] - gaps["reference"]
    values = [*policy.values(), *reference.values()]
    room = 0.15 * (max(values) - min(values))
    left.set(xlabel="ln p of the answer (nats)", ylim=(1.7, -0.7), xlim=(min(values) - room, max(values) + room))
    left.set_yticks([0, 1], ["policy", "reference"])
    left.set_title(f"h = {gaps['policy']:.2f} - ({gaps['reference']:.2f}) = {h:.2f} nats", fontsize=10)
    left.grid(visible=False, axis="y")
    reach = max(6.0, 1.2 * abs(h))
    axis = np.linspace(-reach, reach, 121)
    right.plot(axis, np.logaddexp(0, -beta * axis))
    right.plot(0, np.log(2), "o", markerfacecolor="white", color="#1b4d89", label="before training")
    right.plot(h, np.logaddexp(0, -beta * h), "o", color="#1b4d89", label="this pair")
    right.set(xlabel="h (nats)", ylabel="loss (nats)")
    right.set_title(f"The loss falls as h grows (β = {beta:g})", fontsize=10)
    right.legend(frameon=False)
    plt.show()


_ABOVE: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
