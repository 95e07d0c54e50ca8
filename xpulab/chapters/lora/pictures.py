"""The figures of chapter 03: LoRA's low-rank update, the size of adapters, what training changed, the variants.

Each draws the numbers that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt

from xpulab.chapters.shared.figures import STYLES, TONES, box, curves, diagram, new_panels
from xpulab.reference.cost import Model

QWEN2 = {
    "Qwen2-0.5B": Model(24, 896, 4864, heads=14, kv_heads=2, vocabulary=151_936, qkv_bias=True, tied=True),
    "Qwen2-7B": Model(28, 3584, 18_944, heads=28, kv_heads=4, vocabulary=152_064, qkv_bias=True),
}
"""The shapes of two published models, from the config.json of each."""

_LINE = {"color": "#1b4d89", **STYLES[0]}
_OTHER = {"color": "#c1440e", **STYLES[1]}


def low_rank(inputs: int, outputs: int, rank: int, alpha: int) -> None:
    """W + s A B of one linear layer, drawn to scale: inputs x outputs, inputs x rank, rank x outputs."""
    gap, bottom = 0.2 * outputs, 0.42 * inputs
    width, height = 2 * outputs + rank + 2.6 * gap, inputs + bottom + 0.06 * inputs
    share = rank * (inputs + outputs) / (inputs * outputs)
    axes = diagram(width, height, f"Two thin matrices: {share:.0%} as many parameters as the weight that they change")
    middle = bottom + inputs / 2
    first, second = outputs + gap, outputs + gap + rank + 0.6 * gap
    box(axes, 0, bottom, outputs, inputs, f"W\n{inputs} x {outputs}", "first")
    axes.text(outputs + gap / 2, middle, f"+ {alpha / rank:g} x", ha="center", va="center", fontsize=11)
    box(axes, first, bottom, rank, inputs, "A", "second")
    axes.text((first + rank + second) / 2, middle, "x", ha="center", va="center", fontsize=11)
    box(axes, second, middle - rank / 2, outputs, rank, "B", "second")
    _below(axes, outputs / 2, bottom, f"frozen\n{inputs * outputs:,} parameters")
    _below(axes, first + rank / 2, bottom, f"trainable\n{inputs} x {rank}\n{inputs * rank:,} parameters")
    _below(axes, second + outputs / 2, middle - rank / 2, f"trainable\n{rank} x {outputs}\n{rank * outputs:,} parameters")
    plt.show()


def sizes(model: Model, rank: int) -> tuple[int, int]:
    """The numbers of a model, and those of a LoRA adapter for its seven linear layers in each block."""
    hidden, inner, key_value = model.hidden, model.intermediate, model.hidden // model.heads * model.kv_heads
    linear = [(hidden, hidden)] * 2 + [(hidden, key_value)] * 2 + [(hidden, inner)] * 2 + [(inner, hidden)]
    return model.parameters(), model.layers * rank * sum(a + b for a, b in linear)


def adapter_sizes(model: int, adapter: int, rank: int) -> None:
    """The numbers of this model and its adapter, and those of two Qwen2 models and theirs, on a logarithmic scale."""
    bars = {"this model": (model, adapter), **{name: sizes(shape, rank) for name, shape in QWEN2.items()}}
    _, axes = plt.subplots(figsize=(7.0, 0.8 * len(bars) + 1.0), layout="constrained")
    for row, values in enumerate(bars.values()):
        for part, (value, tone) in enumerate(zip(values, (TONES["first"], TONES["second"]), strict=True)):
            label = ("model", "adapter")[part] if row == 0 else None
            place = row + 0.4 * part - 0.2
            axes.barh(place, value, 0.36, color=tone.fill, hatch=tone.hatch, edgecolor="#555555", label=label)
            share = f"  ({value / sum(values):.1%} of both)" if part else ""
            axes.text(value * 1.15, place, f"{value:,}{share}", va="center", fontsize=8)
    axes.set(xscale="log", xlim=(1e3, 3e12), xlabel="parameters (logarithmic scale)")
    axes.set_title(f"The larger the model, the smaller the share of an adapter of rank {rank}", fontsize=10)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.legend(frameon=False, loc="upper right")
    plt.show()


def training(losses: Sequence[Sequence[float]], changes: Mapping[str, Sequence[float]], rank: int) -> None:
    """Two panels: the loss of each run by step; the singular values of what each run added to one weight.

    changes: the singular values by the name of the run, largest first; they are drawn as a share of the largest.
    losses: those of the same runs, in the same order.
    """
    _, (panels,) = new_panels(1, 2, height=3.3)
    for (label, values), style in zip(zip(changes, losses, strict=True), (_LINE, _OTHER), strict=True):
        panels[0].plot(range(1, len(values) + 1), values, label=label, **style)
    panels[0].set(xlabel="step", ylabel="loss (nats per token)", yscale="log", title="Full fine-tuning ends lower")
    for (label, values), style, marker in zip(changes.items(), (_LINE, _OTHER), "o^", strict=True):
        shown = [max(value / values[0], 1e-9) for value in values]
        panels[1].plot(range(1, len(values) + 1), shown, label=label, marker=marker, markersize=3, **style)
    panels[1].axvline(rank, color="#444444", linewidth=0.8)
    panels[1].set(xlabel="number of the singular value", ylabel="share of the largest", yscale="log")
    panels[1].set(title=f"LoRA's change ends at rank {rank}", ylim=(1e-9, 3))
    for panel in panels:
        panel.title.set_fontsize(10)
    panels[0].legend(frameon=False, fontsize=8)
    panels[1].legend(frameon=False, fontsize=8, loc="center")
    plt.show()


def variants(losses: Mapping[str, Sequence[float]]) -> None:
    """The last of a few losses of each variant, on a line at the first loss of the first one."""
    _, ((axes,),) = new_panels(1, height=0.3 * len(losses) + 0.7)
    axes.barh(range(len(losses)), [values[-1] for values in losses.values()], color=TONES["first"].fill, edgecolor="#555555")
    axes.axvline(next(iter(losses.values()))[0], color="#444444", linestyle=":")
    axes.set_yticks(range(len(losses)), list(losses))
    axes.invert_yaxis()
    axes.set(xlabel="loss after a few steps (nats per token); dotted: before", title="Each variant learns")
    plt.show()


def ranks(losses: Mapping[int, Sequence[float]]) -> None:
    """The training loss of a few steps for each rank."""
    series = {f"rank r = {rank}": values for rank, values in losses.items()}
    curves(series, x="step", y="loss (nats per token)", title="A higher rank learns faster, with more parameters")


def _below(axes: plt.Axes, x: float, y: float, text: str) -> None:
    axes.annotate(text, (x, y), xytext=(0, -4), textcoords="offset points", ha="center", va="top", fontsize=8)
