"""Pictures of 06_checkpoints: files by size, and steps of resumed runs that are equal."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np

from xpulab.chapters.shared.figures import TONES, box, diagram, new_panels
from xpulab.chapters.shared.run_recorder import RunRecorder

SMALLEST = 0.01
"""The left end of the axis of sizes, in kB."""

_WEIGHTS, _OPTIMIZER, _POSITION, _MODEL = (
    "weights",
    "moments of the optimizer",
    "where the run stands",
    "configuration, tokenizer",
)
_HOLDS = {
    "model_state.pdparams": _WEIGHTS,
    "optimizer.pdopt": _OPTIMIZER,
    "scheduler.pdparams": _POSITION,
    "rng_state.pth": _POSITION,
    "trainer_state.json": _POSITION,
    "training_args.bin": _POSITION,
}
_TONES = {_WEIGHTS: "strong", _OPTIMIZER: "second", _POSITION: "third", _MODEL: "idle"}


def files_of_a_checkpoint(sizes: Mapping[str, int]) -> None:
    """The files of a checkpoint, the largest on top; sizes: bytes by file name."""
    names = sorted(sizes, key=lambda name: sizes[name])
    _, panels = new_panels(1, height=0.28 * len(names) + 0.8)
    axes = panels[0][0]
    for row, name in enumerate(names):
        tone = TONES[_TONES[_HOLDS.get(name, _MODEL)]]
        axes.barh(row, max(sizes[name], 1) / 1000, color=tone.fill, hatch=tone.hatch, edgecolor="#555555")
        axes.text(max(sizes[name] / 1000, SMALLEST) * 1.15, row, f"{sizes[name] / 1000:,.1f}", va="center", fontsize=8)
    for holds, tone_name in _TONES.items():
        tone = TONES[tone_name]
        axes.barh(-1, 0, color=tone.fill, hatch=tone.hatch, edgecolor="#555555", label=holds)
    axes.set_xscale("log")
    axes.set(
        xlabel="size (kB, logarithmic)",
        title="Weights and moments are nearly all of a checkpoint",
        ylim=(-0.6, len(names) - 0.4),
        xlim=(SMALLEST, max(sizes.values()) / 1000 * 8),
    )
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    plt.show()


def resumed_runs(runs: Mapping[str, tuple[RunRecorder, Mapping[int, RunRecorder]]], epoch: int) -> None:
    """For each step of each resumed run, whether it equals that of the uninterrupted run; a diagram for each kind of run.

    runs: by title the uninterrupted run, and the resumed ones by the step after which they were resumed. epoch: steps an epoch.
    """
    steps = max(len(whole.losses) for whole, _ in runs.values())
    height = max(len(resumed) for _, resumed in runs.values())
    width, gap = 1.4 * steps, 2.6
    axes = diagram(len(runs) * (width + gap), 0.8 * height + 1.6, "What differs between resumed runs and an uninterrupted one")
    for number, (title, (whole, resumed)) in enumerate(runs.items()):
        left = number * (width + gap) + gap - 0.2
        axes.text(left + width / 2, 0.8 * height + 1.1, title, ha="center", va="bottom", fontsize=10)
        for step in range(1, steps + 1):
            axes.text(left + 1.4 * (step - 0.5), 0.8 * height + 0.75, f"step {step}", ha="center", va="center", fontsize=8)
        for row, (at, run) in enumerate(resumed.items()):
            bottom = 0.8 * (height - row) - 0.25
            axes.text(left - 0.15, bottom + 0.35, f"after step {at}", ha="right", va="center", fontsize=8)
            saved = "from the checkpoint" if at > steps / 4 else "from the\ncheckpoint" if at > steps / 8 else ""
            box(axes, left, bottom, 1.4 * at, 0.7, saved, "idle", fontsize=8, linespacing=0.9)
            for step in range(at + 1, steps + 1):
                text, tone = _compared(whole, run, step)
                box(axes, left + 1.4 * (step - 1), bottom, 1.4, 0.7, text, tone, fontsize=8, linespacing=0.9)
        for end in range(epoch, steps, epoch):
            axes.plot(
                [left + 1.4 * end] * 2, [0.4, 0.8 * height + 0.95], color="#1a1a1a", linestyle="--", linewidth=1.4, zorder=0.5
            )
            axes.text(left + 1.4 * end, 0.15, "an epoch ends", ha="center", va="center", fontsize=8)
    plt.show()


def _compared(whole: RunRecorder, run: RunRecorder, step: int) -> tuple[str, str]:
    """What differs in a step, in words, and the tone of its box."""
    words = []
    if not np.array_equal(run.batches[step], whole.batches[step]):
        words.append("batch")
    if run.drawn[step] != whole.drawn[step]:
        words.append("random")
    if not words and run.losses[step] != whole.losses[step]:
        words.append("loss")
    return ("\n".join(words), "wrong") if words else ("equal", "first")
