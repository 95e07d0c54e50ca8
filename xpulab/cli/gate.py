"""`xpulab gate`: the last verdict in one line, for a scheduler."""

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
    reason: Annotated[
        bool,
        typer.Option("--reason", help="When it is red, print the text of a drain reason instead: [node_problem] xpulab ..."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The verdict as JSON: outcome, problems, what to do.")] = False,
) -> None:
    """Say in one line what the last whole run found. Exit code 0: green, 1: red, 2: no verdict, or a green one that is too old.

    It only reads result.json, for a scheduler's prolog or health check: a job measures, with xpulab run.
    """
    from xpulab.fleet.gate import gate as last_verdict
    from xpulab.fleet.gate import without_verdict

    try:
        answer = last_verdict(folder, max_age)
    except InputError as error:
        if not (reason or as_json):
            raise
        answer = without_verdict(str(error))
    print(json.dumps(answer.to_json(), indent=2) if as_json else answer.reason if reason else answer.line)
    raise typer.Exit(answer.code)
