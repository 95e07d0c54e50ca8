"""`xpulab data`: what a file of examples gives a model to learn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def data(
    file: Annotated[Path, typer.Argument(help="JSON lines: messages, conversations, src and tgt, question and answer, ...")],
    model: Annotated[str, typer.Option(help="The folder of a model, or a release of xpulab model: its tokenizer is used.")],
    max_length: Annotated[int | None, typer.Option(min=1, help="Tokens at which a row is cut; default: the context.")] = None,
) -> None:
    """Look at data before a training: lengths, labels, end tokens, duplicates, cuts. Exit code 1 when something is wrong."""
    from xpulab.pretrained.prepare import prepare
    from xpulab.pretrained.releases import RELEASES
    from xpulab.pretrained.survey import format_survey, survey

    found = survey(file, prepare(model) if model in RELEASES else Path(model), max_length)
    print(format_survey(found))
    raise typer.Exit(1 if found.outcome == "wrong" else 0)
