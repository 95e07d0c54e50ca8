"""`xpulab run`: the notebooks on this machine, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.cli.run_kinds import Asked, start
from xpulab.devices import MOST_CARDS


@command()
def run(
    notebooks: Annotated[list[str] | None, typer.Argument(help="Numbers, names, paths or globs; without one, all.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Show what would run, with its checks; run nothing.")] = False,
    device: Annotated[
        str, typer.Option(help="auto (what this machine is meant to have; red when that cannot be used), xpu, gpu, cpu or sim.")
    ] = "auto",
    expect: Annotated[
        str | None, typer.Option(help="How many cards this machine must have: fewer are red. XPULAB_LABEL says it for a site.")
    ] = None,
    cards: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST_CARDS, help="How many cards a notebook may use. Default: 1; sim: as many as one asks for."
        ),
    ] = None,
    level: Annotated[
        str,
        typer.Option(
            help="smoke: is it obviously broken. quick: does it work at all. standard: does it work right. "
            "soak: does it keep working: training, collectives and checkpoints again and again, see --hours."
        ),
    ] = "quick",
    hours: Annotated[
        float | None, typer.Option(help="Only with --level soak: how long. Default: until it is interrupted.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Of data, initial values and order; with --level soak that of the first round.")
    ] = 0,
    checks: Annotated[
        list[str] | None,
        typer.Option("--check", help="Run only what the checks with this name or glob need; may be given several times."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Notebooks at a time. Default: as many as processors and memory have room for; on a card one."
        ),
    ] = None,
    time_limit: Annotated[
        int,
        typer.Option(
            min=2, max=100, help="A notebook that takes so many times its budget is stopped; raise it on a busy machine."
        ),
    ] = 5,
    cold: Annotated[
        bool, typer.Option("--cold", help="Start every kernel anew instead of forking it from a warm process.")
    ] = False,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the run in --out that was killed or interrupted; give its options again."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
    prove: Annotated[
        bool, typer.Option("--prove", help="Then inject a sample of faults here; one that no check detects makes the run red.")
    ] = False,
    faults: Annotated[int, typer.Option(min=1, help="With --prove: how many.")] = 6,
    bundle: Annotated[
        Path | None, typer.Option(help="Then write this new file, with everything that the run knows, as xpulab bundle does.")
    ] = None,
) -> None:
    """Run the notebooks on this machine and say whether it is ready."""
    raise typer.Exit(start(Asked(**locals())))
