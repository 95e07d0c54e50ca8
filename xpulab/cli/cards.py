"""`xpulab cards`: whether this machine has the cards that it must have."""

from __future__ import annotations

from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def cards(
    number: Annotated[int, typer.Argument(min=1, help="How many cards this machine must have.")],
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
) -> None:
    """Count the cards that can be used. Exit code 0: as many as that, or more, 1: fewer.

    It asks the driver and the vendor's tool, and imports no Paddle: a health check between two runs.
    """
    from xpulab.devices import DEVICES
    from xpulab.doctor.detect import detect
    from xpulab.doctor.meant import AcceleratorLost, Expected, auto, require_cards
    from xpulab.errors import InputError

    if device not in ("auto", *DEVICES):
        raise InputError(f"--device {device}: no such device; choose auto, {', '.join(DEVICES)}")
    expect, detection = Expected(number, f"xpulab cards {number}"), detect()
    try:
        if device == "auto":
            auto(detection, (), expect)
        elif device in ("xpu", "gpu"):  # of others there are as many as one asks for
            require_cards(device, detection, expect)
    except AcceleratorLost as error:
        print(f"xpulab: cards {error.lost.problem}; rerun: xpulab cards {number} --device {device}")
        raise typer.Exit(1) from None
    print(f"xpulab: {number} cards, as expected")
