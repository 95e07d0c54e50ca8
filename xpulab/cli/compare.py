"""`xpulab compare`: runs, releases, devices or machines side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.messages import shown


@command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of xpulab run, result.json files or bundles; a folder that holds several stands for all."),
    ],
    kind: Annotated[
        str | None,
        typer.Option("--as", help="parity (devices), upgrade (before and after) or fleet (machines). Default: what fits."),
    ] = None,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Machines of several types: compare within each, instead of refusing them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The comparison as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for compare.json and compare.html.")] = None,
) -> None:
    """Compare runs side by side, and name what is wrong or unlike. Exit code 0: nothing, 1: something, 2: could not compare.

    It only reads results: nothing is measured, and the runs may come from other machines.
    """
    from xpulab.fleet.compare.choose import compare as compare_runs
    from xpulab.fleet.compare.comparison import to_json
    from xpulab.fleet.compare.report import format_comparison, write
    from xpulab.fleet.runs import read_runs

    read, unreadable = read_runs(runs)
    comparison = compare_runs(read, unreadable, kind, mixed)
    print(json.dumps(to_json(comparison), indent=2) if as_json else format_comparison(comparison))
    if out is not None:
        page = write(comparison, out)
        if not as_json:
            print(f"{shown('report: ')}{page}")
    raise typer.Exit(1 if comparison.findings else 0)
