"""The pictures of 17_export: a program and its weights, and who reads them."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt

from xpulab.notebook import figures
from xpulab.notebook.export_files import PARAMETER, ProgramFile


def program_and_weights(program: ProgramFile, sizes: Mapping[str, int]) -> None:
    """Draw the two files of a program: its operators, the weights that these take, and what reads both.

    sizes: of each file in bytes, by its ending, ".json" and ".pdiparams".
    """
    operators = [name.removeprefix("pd_op.") for name in program.operators if name != PARAMETER]
    weights = sorted(program.parameters)
    height = 0.8
    tall = height * max(len(operators), len(weights))
    axes = figures.diagram(16, tall + 2.4, "The program lists operators in order; the weights have no names of their own")
    for number, name in enumerate(operators):
        figures.box(axes, 4.6, tall - height * (number + 1) + 0.3, 3.4, height * 0.8, name, "first")
    for number, name in enumerate(weights):
        figures.box(axes, 9.4, tall - height * (number + 1) + 0.3, 3.0, height * 0.8, name, "second")
    figures.box(axes, 0.2, tall / 2, 2.8, 1.2, "Python code\nof the layer", "plain")
    figures.arrow(axes, (3.0, tall / 2 + 0.6), (4.5, tall / 2 + 0.6), "record")
    for row, text in enumerate(("jit.load", "paddle.inference")):
        figures.box(axes, 13.4, tall / 2 - 1.4 * row + 0.4, 2.5, 1.0, text, "third")
    figures.arrow(axes, (12.4, tall / 2 + 0.3), (13.4, tall / 2 + 0.3), "")
    for x, ending in ((4.6, ".json"), (9.4, ".pdiparams")):
        axes.text(x, tall + 0.6, f"{ending}: {sizes[ending]:,} bytes", fontsize=9)
    plt.show()
