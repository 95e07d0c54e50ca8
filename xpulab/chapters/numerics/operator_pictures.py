"""The figure of the operators of a training step."""

from __future__ import annotations

from collections.abc import Mapping

from xpulab.chapters.shared.figures import new_panels

_HATCHES = ("", "//", "..", "xx")


def counts_by_operator(counts: Mapping[str, Mapping[str, int]], at_most: int = 25) -> None:
    """How often a step calls each operator, a bar for each operator with a part for each step.

    counts: by name of the step how often each operator is called. at_most: the operators shown; those called most often.
    """
    total: dict[str, int] = {}
    for of_step in counts.values():
        for operator, count in of_step.items():
            total[operator] = total.get(operator, 0) + count
    shown = sorted(total, key=lambda operator: (total[operator], operator))[-at_most:]
    _, panels = new_panels(1, height=0.22 * len(shown) + 1.0)
    axes = panels[0, 0]
    begin = dict.fromkeys(shown, 0)
    for (name, of_step), hatch in zip(counts.items(), _HATCHES, strict=False):
        lengths = [of_step.get(operator, 0) for operator in shown]
        axes.barh(shown, lengths, left=[begin[operator] for operator in shown], hatch=hatch, edgecolor="white", label=name)
        begin = {operator: begin[operator] + length for operator, length in zip(shown, lengths, strict=True)}
    axes.tick_params(axis="y", labelsize=8)
    axes.set(xlabel="calls in one step", title="A few operators make up a training step")
    axes.legend()
