"""The figures of chapter 21: four trainings, answers before and after, intervals, norms of gradients, a file of events.

A curve is a list of (step, value).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import TONES, new_axes, new_panels

Curve = Sequence[tuple[int, float]]


def losses(training: Curve, heldout: Curve) -> None:
    """The loss of each step, and the held-out loss where it was measured."""
    axes = new_axes()
    _draw_losses(axes, training, heldout)
    best = min(heldout, key=lambda each: each[1])
    axes.set(xlabel="optimizer step", ylabel="loss (nats per token)", title=f"The held-out loss is lowest at step {best[0]}")
    axes.legend(frameon=False)
    plt.show()


def four_curves(runs: Mapping[str, tuple[Curve, Curve]]) -> None:
    """For each name its training and its held-out loss, four panels with one scale."""
    figure, axes = plt.subplots(2, 2, figsize=(8.0, 5.0), sharex=True, sharey=True, layout="constrained")
    for each, (name, (training, heldout)) in zip(axes.flat, runs.items(), strict=True):
        _draw_losses(each, training, heldout)
        each.set_title(name, loc="left", fontsize=10)
    axes[0, 0].legend(frameon=False)
    figure.supxlabel("optimizer step", fontsize=10)
    figure.supylabel("loss (nats per token)", fontsize=10)
    plt.show()


def _draw_losses(axes: plt.Axes, training: Curve, heldout: Curve) -> None:
    axes.plot(*zip(*training, strict=True), label="training")
    axes.plot(*zip(*heldout, strict=True), "--o", markersize=4, label="held out")
    axes.set_yscale("log")


def right_answers(shares: Mapping[str, Mapping[str, float]]) -> None:
    """The share of right answers, 0 to 1: by model a share for each kind of question."""
    axes, height = new_axes(), 0.8 / len(shares)
    kinds = list(next(iter(shares.values())))
    for number, ((model, of_kind), tone) in enumerate(zip(shares.items(), ("idle", "second", "third", "first"), strict=True)):
        places = np.arange(len(kinds)) + (number - (len(shares) - 1) / 2) * height
        colours = TONES[tone]
        bars = axes.barh(
            places, [100 * of_kind[kind] for kind in kinds], height, label=model, color=colours.fill, hatch=colours.hatch
        )
        axes.bar_label(bars, fmt="%.0f %%", padding=3, fontsize=8)
    axes.set_yticks(range(len(kinds)), list(map(repr, kinds)))  # as in the file, in every language
    axes.invert_yaxis()
    axes.set(xlabel="right answers, %", xlim=(0, 112), title="New rows alone destroy what the model knew")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=len(shares))
    plt.show()


def intervals(interval: Callable[[int, int], tuple[float, float]], share: float, counts: Sequence[int]) -> None:
    """The 95 % interval of a share of right answers, by the number of questions; interval: of (right, questions)."""
    axes = new_axes()
    found = [interval(round(share * count), count) for count in counts]
    middle = [100 * share] * len(counts)
    errors = [[100 * (share - low) for low, _ in found], [100 * (high - share) for _, high in found]]
    axes.errorbar(counts, middle, yerr=errors, fmt="o", capsize=5)
    axes.set_xscale("log")
    axes.set_xticks(counts, list(map(str, counts)))
    axes.minorticks_off()
    axes.set(xlabel="questions", ylabel="right answers, %", title="How far the true share may lie from the measured one")
    plt.show()


def norms(runs: Mapping[str, Sequence[float]], limit: float) -> None:
    """The norm of the gradients of each step of some runs, on a logarithmic axis, with the limit of a spike."""
    axes = new_axes()
    for (name, values), style in zip(runs.items(), ("-", "--"), strict=True):
        axes.plot(range(1, len(values) + 1), values, style, label=name)
    axes.axhline(limit, color="#555555", linestyle=":", label="limit")
    axes.set_yscale("log")
    axes.set(xlabel="optimizer step", ylabel="norm of the gradients", title="One bad row is one spike")
    axes.legend(frameon=False)
    plt.show()


def event_file(series: Mapping[str, Curve]) -> None:
    """The series of an event file, a panel for each, the steps below."""
    _, axes = new_panels(2, len(series) // 2, height=1.9)
    for each, (name, values) in zip(axes.flat, series.items(), strict=True):
        each.plot(*zip(*values, strict=True))
        each.set_title(name, loc="left", fontsize=10)
    for each in axes[-1]:
        each.set_xlabel("optimizer step")
    plt.show()
