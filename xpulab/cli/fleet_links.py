"""`xpulab fleet links`: nodes of a Slurm cluster work together, and which node or which link is bad when they do not."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.cli.fleet import fleet, shell_words
from xpulab.devices import MOST_CARDS


@command(fleet)
def links(
    device: Annotated[str, typer.Option(help="xpu, gpu, cpu or sim: what every node has.")],
    nodes: Annotated[str, typer.Option(help="How many nodes, or which: node[1-3,7]. Default: those of the job.")] = "",
    cards: Annotated[int, typer.Option(min=1, max=MOST_CARDS, help="Cards of each node, so tasks of each node.")] = 1,
    limit: Annotated[float, typer.Option(min=1, help="Seconds of one trial: a hang is found after this long.")] = 120.0,
    start_limit: Annotated[float, typer.Option(min=1, help="Seconds until tasks and ranks have imported Paddle.")] = 300.0,
    trials: Annotated[int, typer.Option(min=1, help="The most trials of the search.")] = 200,
    slow: Annotated[
        float, typer.Option(min=0, max=1, help="A pair of nodes is slow below this share of the typical rate; 0: none is.")
    ] = 0.25,
    seed: Annotated[int, typer.Option(min=0, help="Of the values in the training.")] = 0,
    options: Annotated[
        str, typer.Option("--engine-options", help="Further options of srun: '--gres=xpu:8 --partition=lab'.")
    ] = "",
    python: Annotated[str, typer.Option(help="The command of Python on the nodes. Default: this one.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as JSON; data/schema/links.schema.json.")] = False,
) -> None:
    """Start a rank for each card of the nodes, compare collectives and a training, and name the bad node or link.

    Exit code 0: all nodes work together, 1: they do not, 2: no task could be started.
    """
    from xpulab.fleet.across import verdict
    from xpulab.fleet.across.run import Asked, run

    asked = Asked(
        nodes=nodes,
        device=device,
        cards=cards,
        python=tuple(shell_words("--python", python)) or (sys.executable,),
        options=tuple(shell_words("--engine-options", options)),
        start_seconds=start_limit,
        trial_seconds=limit,
        most_trials=trials,
        seed=seed,
        slow=slow,
    )
    found = run(asked, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(verdict.as_json(found), indent=1) if as_json else verdict.format_verdict(found))
    raise typer.Exit(0 if found.green else 1)
