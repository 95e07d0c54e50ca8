"""`xpulab align`: two logs of a user's own training, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.verdict import exit_code


@command()
def align(
    a: Annotated[
        Path, typer.Argument(metavar="A", help="The log of a training: of xpulab.align.Log or of a trainer, CSV, events.")
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="The log of the same training elsewhere, or after a change.")],
    noise: Annotated[
        list[Path] | None,
        typer.Option(
            help="A log of the training of A with other rounding, which measures the noise; may be given several times."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="What a file calls a quantity, as loss=my_loss; also step, learning_rate, grad_norm; several times."),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="The type of the products where a log does not say it: float32, bfloat16 or float16.")
    ] = "",
    within: Annotated[
        str | None, typer.Option(help="Accept a mean relative difference of the loss up to this, as 2%, in place of the noise.")
    ] = None,
    after: Annotated[int, typer.Option(help="The mean relative difference counts behind this step.")] = 0,
) -> None:
    """Compare two logs of a training: the first step that differs beyond the noise, and what may explain it.

    Exit code 0: right: the same, or within the noise, 1: wrong or undecided, 2: the logs cannot be compared.
    """
    from xpulab.align import band, compare, report
    from xpulab.align.read import NAMES

    names: dict[str, list[str]] = {}
    for text in column or ():
        quantity, _, name = text.partition("=")
        if quantity not in NAMES or not name:
            raise InputError(f"--column {text}: give one of {', '.join(NAMES)} and a name, as loss=my_loss")
        names.setdefault(quantity, []).append(name)
    if dtype not in ("", *band.ROUNDING):
        raise InputError(f"--dtype {dtype}: give one of {', '.join(band.ROUNDING)}")
    alignment = compare.align(a, b, noise or (), names, dtype, None if within is None else _share(within), after)
    print(report.format_alignment(alignment))
    raise typer.Exit(exit_code(alignment.answer))


def _share(text: str) -> float:
    """2% or 0.02. Raises InputError for what is no share."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise InputError(f"--within {text}: give a share below 1, as 2% or 0.02")
    return share
