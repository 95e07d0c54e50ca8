"""`xpulab soak`: the same sections again and again, until the time is over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.messages import N_, shown


@command()
def soak(
    notebooks: Annotated[list[str] | None, typer.Argument(help="As for xpulab run; without one, all chapters.")] = None,
    hours: Annotated[float | None, typer.Option(help="How long. Default: until it is interrupted.")] = None,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    expect: Annotated[str | None, typer.Option(help="As for xpulab run.")] = None,
    cards: Annotated[int | None, typer.Option(min=1, max=MOST_CARDS, help="As for xpulab run.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the first round, and of every second one.")] = 0,
    checks: Annotated[
        list[str] | None, typer.Option("--check", help="Run these checks in place of those of data/soak.yaml; names or globs.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="As for xpulab run.")] = None,
    searches: Annotated[
        bool, typer.Option("--search/--no-search", help="Between rounds try random cases of operators.")
    ] = True,
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
) -> None:
    """Repeat training, collectives and checkpoints for hours, and name the first round in which something differs."""
    from rich.console import Console

    from xpulab.doctor.meant import AcceleratorLost
    from xpulab.harness import fork_server
    from xpulab.harness.execute import RunOptions
    from xpulab.soak.loop import Soak
    from xpulab.soak.loop import soak as run_rounds
    from xpulab.soak.selection import ROUND_LEVEL, make_soak_plans

    if hours is not None and not 0 < hours < math.inf:
        raise InputError(
            N_("--hours {hours}: must be a number above 0; leave it out to run until it is interrupted", hours=f"{hours:g}")
        )
    expected = chosen.expect(expect, device)
    plans = make_soak_plans(notebooks or [], checks or [])
    try:
        used = chosen.device(device, expected)
        options = RunOptions(used, ROUND_LEVEL, chosen.cards(used, cards, plans, expected), seed)
    except AcceleratorLost as error:
        print(shown(str(error.lost)))
        raise typer.Exit(1) from None
    at_once = jobs or chosen.jobs(used, len(plans))
    chosen.limit_threads(at_once, len(plans))
    with fork_server.started(used) as server:
        code = run_rounds(Soak(tuple(plans), options, at_once, hours, chosen.folder(out), searches), Console(), server)
    if code == 130:
        raise KeyboardInterrupt
    raise typer.Exit(code)
