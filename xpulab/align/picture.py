"""The losses of two logs, their difference, and the band that noise explains."""

from __future__ import annotations

from pathlib import Path

from xpulab.align.compare import Alignment
from xpulab.chapters.shared.figures import STYLES, new_panels
from xpulab.errors import InputError


def draw(alignment: Alignment, path: Path) -> None:
    """Write the figure; the ending of the path decides its format. Raises InputError when that cannot be done."""
    import matplotlib.pyplot as plt

    numbers, logs = alignment.numbers, (alignment.a, alignment.b)
    losses = [[log.steps[number].values["loss"] for number in numbers] for log in logs]
    figure, panels = new_panels(2, height=2.4)
    above, below = panels[:, 0]
    for log, values, style in zip(logs, losses, STYLES[:2], strict=True):
        above.plot(numbers, values, label=log.path.name, **style)
    above.set(ylabel="loss", title=f"{alignment.a.path.name} and {alignment.b.path.name}: {alignment.verdict}")
    above.legend(frameon=False)
    apart = [abs(x - y) for x, y in zip(*losses, strict=True)]
    below.plot(numbers, apart, label="difference of the losses", **STYLES[0])
    below.plot(numbers, alignment.band.widths["loss"], label=f"noise, {alignment.band.kind}", **STYLES[1])
    below.set_yscale("symlog", linthresh=max(min(alignment.band.widths["loss"]), 1e-12))
    below.set(xlabel="step", ylabel="|a - b|")
    if alignment.beyond is not None:
        below.axvline(
            alignment.beyond.step, color="#444444", linewidth=1, label=f"beyond the noise, step {alignment.beyond.step}"
        )
    below.legend(frameon=False)
    for axes in (above, below):
        axes.xaxis.get_major_locator().set_params(integer=True)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: the picture cannot be written: {error}; name a .png or .svg file in a folder that is there"
        ) from error
    finally:
        plt.close(figure)
