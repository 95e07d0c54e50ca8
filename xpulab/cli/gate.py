"""`xpulab gate`: may this machine take work, in one line, for a scheduler."""

from __future__ import annotations

import json
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
    require: Annotated[
        str,
        typer.Option(
            envvar="XPULAB_REQUIRE",
            help="What a green run must have at least, each key optional: device=xpu,cards=8,level=quick,notebooks=all.",
        ),
    ] = "",
    reason: Annotated[
        bool,
        typer.Option("--reason", help="When it is red, print the text of a drain reason instead: [node_problem] xpulab ..."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer for programs.")] = False,
) -> None:
    """Say in one line what runs and soaks found here. Exit code 0: green or warning, 1: red or undecided, 2: unknown.

    Red stays until a later green run has as much. It only reads, for a scheduler's prolog or health check: a job measures, with
    xpulab run.
    """
    from xpulab.fleet.gate import Answer
    from xpulab.fleet.gate import gate as ask

    try:
        answer = ask(folder, max_age, require)
    except (InputError, OSError, MemoryError) as error:
        if not (reason or as_json):
            raise
        answer = Answer("unknown", f"xpulab: unknown, {error or 'there is too little memory'}")
    print(json.dumps(answer.to_json(), indent=2) if as_json else answer.reason if reason else answer.line)
    raise typer.Exit(answer.code)
