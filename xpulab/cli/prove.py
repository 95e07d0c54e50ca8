"""`xpulab prove`: faults injected on this machine, after a run that was green here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command


@command()
def prove(
    run: Annotated[Path, typer.Argument(help="The folder of a run of this machine that has ended: xpulab run --out RUN.")],
    faults: Annotated[int, typer.Option(min=1, help="How many faults are injected.")] = 6,
    jobs: Annotated[int | None, typer.Option(min=1, help="Notebooks at a time. Default: as for xpulab run.")] = None,
) -> None:
    """Inject a sample of faults that the checks of a run must detect here. Exit code 1 when one is missed."""
    from rich.console import Console

    from xpulab.faults.prove import prove as inject
    from xpulab.harness import run as harness
    from xpulab.harness import run_file

    console, folder = Console(), run.resolve()
    plans, options = run_file.read(folder)
    result = harness.require_finished(plans, options, folder)
    raise typer.Exit(0 if inject(result, faults, jobs or chosen.jobs(options.device, len(plans)), console) else 1)
