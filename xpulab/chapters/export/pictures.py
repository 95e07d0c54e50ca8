"""The pictures of 08_export: a program and its weights, and who reads them."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt

from xpulab.chapters.export.export_files import PARAMETER, ProgramFile
from xpulab.chapters.shared import figures


def program_and_weights(program: ProgramFile, sizes: Mapping[str, int]) -> None:
    """Draw the two files of a program: its operators, the weights that these take, and what reads both.

    sizes: of each file in bytes, by its ending, ".json" and ".pdiparams".
    """
    operators = [name.removeprefix("pd_op.") for name in program.operators if name != PARAMETER]
    weights = sorted(program.parameters)
    height = 0.8
    tall = height * max(len(operators), len(weights)) + 0.4
    axes = figures.diagram(16, tall + 1.0, "Two files that belong together: operators in order, and weights")
    figures.box(axes, 4.2, 0.1, 8.4, tall + 0.8)
    for x, ending, names, tone in ((4.6, ".json", operators, "first"), (8.9, ".pdiparams", weights, "second")):
        for number, name in enumerate(names):
            figures.box(axes, x, tall - height * (number + 1) - 0.1, 3.3, height * 0.8, name, tone)
        axes.text(x, tall + 0.2, f"{ending}: {sizes[ending]:,} bytes", fontsize=9)
    axes.text(8.9, tall - height * len(weights) - 0.6, "only the .json\nhas these names", fontsize=9, va="top")
    figures.box(axes, 0.2, tall / 2 - 0.6, 2.8, 1.2, "Python code\nof the layer")
    figures.arrow(axes, (3.0, tall / 2), (4.2, tall / 2), "record")
    for text, y in (("jit.load", tall / 2 + 0.8), ("paddle.inference", tall / 2 - 0.8)):
        figures.box(axes, 13.4, y - 0.5, 2.5, 1.0, text)
        figures.arrow(axes, (12.6, y), (13.4, y))
    plt.show()
