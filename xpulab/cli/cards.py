"""`xpulab cards`: whether this machine has the cards that the label of a runner says."""

from __future__ import annotations

from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def cards(
    label: Annotated[str, typer.Argument(help="Device, words of the model, count, as xpu-p800-8.")],
) -> None:
    """Compare the cards of this machine with a runner's label. Exit code 0: as many, of this model. 1: not.

    It asks the driver and the vendor's tool, and imports no Paddle: the first step of a job that needs these cards.
    """
    from xpulab.doctor.detect import detect
    from xpulab.doctor.meant import differs, expected_label

    problem = differs(expected_label(label), detect())
    print(f"xpulab: cards {problem}; rerun: xpulab cards {label}" if problem else f"xpulab: {label} fits")
    raise typer.Exit(1 if problem else 0)
