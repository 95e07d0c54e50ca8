"""`xpulab compare`: two runs, or the machines of a fleet, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.errors import InputError


@command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of xpulab run, result.json files or bundles; a folder that holds several stands for all."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The comparison as JSON.")] = False,
) -> None:
    """Compare the second of two runs with the first, or each of several machines with the others.

    Exit code 0: nothing, 1: something is wrong or unlike, or undecided, 2: could not compare. It only reads results.
    """
    from xpulab.fleet.compare.comparison import format_comparison, to_json
    from xpulab.fleet.compare.machines import compare_machines
    from xpulab.fleet.compare.two_runs import compare_two
    from xpulab.fleet.runs import read_runs
    from xpulab.verdict import exit_code

    read, unreadable = read_runs(runs)
    number = len(read) + len(unreadable)
    if unreadable and (number <= 2 or not read):
        raise InputError(unreadable[0].reason)
    if number < 2:
        raise InputError(f"{runs[0]}: one run; name two or more, or a folder that holds several")
    comparison = compare_two(*read) if number == 2 else compare_machines(read, unreadable)
    print(json.dumps(to_json(comparison), indent=2) if as_json else format_comparison(comparison))
    raise typer.Exit(exit_code(comparison.verdict))
