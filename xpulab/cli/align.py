"""`xpulab align`: two logs of a user's own training, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def align(
    a: Annotated[Path, typer.Argument(metavar="A", help="The log of a training, as xpulab.align.Log writes it.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The log of the same training elsewhere, or after a change.")],
    noise: Annotated[
        list[Path] | None,
        typer.Option(
            help="A log of the training of A with other rounding, which measures the noise; may be given several times."
        ),
    ] = None,
) -> None:
    """Compare two logs of a training: the first step that differs beyond the noise, and what may explain it.

    Exit code 0: the same, or within the noise, 1: it differs, 2: the logs cannot be compared.
    """
    from xpulab.align import compare, report

    alignment = compare.align(a, b, noise or ())
    print(report.format_alignment(alignment))
    raise typer.Exit(1 if alignment.verdict == compare.DIFFERS else 0)
