"""`xpulab cards`: whether this machine has the cards that the label of a runner says."""

from __future__ import annotations

from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def cards(
    label: Annotated[
        str | None,
        typer.Argument(help="Device, words of the model, count, as xpu-p800-8. Without it: print the label of this one."),
    ] = None,
) -> None:
    """Compare the cards of this machine with a runner's label. Exit code 0: as many, of this model. 1: not.

    It asks the driver and the vendor's tool, and imports no Paddle: the first step of a job that needs these cards.
    """
    from xpulab.doctor.detect import detect
    from xpulab.doctor.label import compare, label_of, parse

    if label is None:
        print(label_of(detect()))
        return
    wanted = parse(label)
    comparison = compare(wanted, detect())
    print(f"xpulab: cards {comparison.line}; rerun: xpulab cards {label}" if not comparison.fits else f"xpulab: {label} fits")
    raise typer.Exit(0 if comparison.fits else 1)
