"""`xpulab search`: random cases of operators, without end."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_

_SECONDS = {"s": 1, "m": 60, "h": 3600}


@command()
def search(
    operators: Annotated[str, typer.Option(help="Operators, or checks, whose name matches this pattern.")] = "*",
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 90s, 10m, 8h.")] = "10m",
    seed: Annotated[int | None, typer.Option(min=0, help="Of the random cases. Default: a new one, which is shown.")] = None,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    out: Annotated[Path, typer.Option(help="A folder for what is found; what is there is tried first.")] = Path("search"),
) -> None:
    """Try operators with random options, sizes, layouts and values, each against its formula in double precision.

    What is wrong is made smaller, and written as a program that needs Paddle and numpy alone. Exit code 1: something is wrong.
    """
    from xpulab.search.loop import Search
    from xpulab.search.loop import search as search_for

    asked = re.fullmatch(r"(\d+)([smh])", duration)
    if not asked or not int(asked[1]):
        raise InputError(N_("--for {given}: give a number and s, m or h, as in 10m", given=duration))
    chosen_seed = secrets.randbelow(1 << 31) if seed is None else seed
    found = Search(chosen.device(device), operators, chosen_seed, int(asked[1]) * _SECONDS[asked[2]], out)
    print(N_("seed {seed}, on {device}", seed=chosen_seed, device=found.device), flush=True)
    search_for(found, lambda text: print(text, flush=True))
    print(N_("{counted}: {found} wrong", counted=dict(found.outcomes), found=len(found.found)))
    raise typer.Exit(1 if found.found else 0)
