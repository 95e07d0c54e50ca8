"""`xpulab gate`: the last verdict in one line, for a scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.errors import InputError


@command()
def gate(
    folder: Annotated[Path, typer.Argument(help="The folder of a run, or one that holds the folders of several runs.")] = Path(
        "out"
    ),
    max_age: Annotated[float, typer.Option(min=0, help="Hours after which a green verdict counts as none.")] = 24.0,
    reason: Annotated[
        bool,
        typer.Option("--reason", help="When it is red, print the text of a drain reason instead: [node_problem] xpulab ..."),
    ] = False,
) -> None:
    """Say in one line what the last whole run found. Exit code 0: green, 1: red, 2: no verdict, or a green one that is too old.

    It only reads result.json, for a scheduler's prolog or health check: a job measures, with xpulab run.
    """
    from xpulab.fleet.gate import UNKNOWN, Answer
    from xpulab.fleet.gate import gate as last_verdict

    try:
        answer = last_verdict(folder, max_age)
    except InputError as error:
        if not reason:
            raise
        answer = Answer(UNKNOWN, f"xpulab: unknown, {error}")
    print(answer.reason if reason else answer.line)
    raise typer.Exit(answer.code)
