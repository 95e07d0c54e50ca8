"""`xpulab baseline`: what this machine measures when it is well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.messages import N_


@command()
def baseline(
    runs: Annotated[int, typer.Option(min=2, help="How many times it is measured; tolerances come from their spread.")] = 5,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    cards: Annotated[int | None, typer.Option(min=1, max=MOST_CARDS, help="As for xpulab run.")] = None,
    level: Annotated[str, typer.Option(help="As for xpulab run; each level has baselines of its own.")] = "quick",
    out: Annotated[Path | None, typer.Option(help="A new folder for the reports. Default: out/<date and time>.")] = None,
) -> None:
    """Measure losses, rates and memory on this machine, idle as it should be, and keep them as its baselines."""
    from rich.console import Console

    from xpulab.harness import baseline as measurement
    from xpulab.harness.execute import RunOptions
    from xpulab.harness.plan import make_plans
    from xpulab.harness.report.text import format_result
    from xpulab.records import baselines

    plans = measurement.measuring(make_plans([], level))
    if not plans:
        raise InputError(N_("no notebook has a check against baselines at level {level}; choose another level", level=level))
    baselines.load_all(baselines.folder())  # what is wrong there is said now, not after the runs
    device = chosen.device(device)
    folder = chosen.folder(out)
    options = RunOptions(device, level, chosen.cards(device, cards, plans))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    names = ", ".join(plan.name for plan in plans)
    print(f"device {device}, level {level}, {runs} runs of {names}, one at a time")
    try:
        baseline = measurement.measure(plans, options, runs, folder, Console())
    except measurement.NotGreen as red:
        print(format_result(red.result))
        print(f"nothing was kept: {red}")
        raise typer.Exit(1) from None
    path = baselines.store(baseline, baselines.folder())
    print(f"{path}: {len(baseline.entries)} baselines, {baseline.origin}")
