"""`xpulab fleet`: the same run on many nodes, and which of them are not like the others; and which do not work together."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from xpulab.child import python_module
from xpulab.cli import chosen
from xpulab.cli.app import HEADINGS, app, command
from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.messages import N_

fleet = typer.Typer(no_args_is_help=True, help="The same run on many nodes, their comparison, and whether they work together.")
app.add_typer(fleet, name="fleet", rich_help_panel=HEADINGS["fleet"])


def _words(option: str, text: str) -> list[str]:
    """The words of an option's value as a shell reads them. Raises InputError when a quotation mark is missing."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(
            N_("{option} {text}: not what a shell reads: {error}", option=option, text=text, error=error)
        ) from error


@command(fleet, context_settings={"ignore_unknown_options": True})
def run(
    nodes: Annotated[str, typer.Option(help="Which nodes: node[1-3,7]; with Slurm also all.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="Notebooks and options of xpulab run: 09_collectives --level smoke --cards 8.")
    ] = None,
    engine: Annotated[str, typer.Option(help="slurm: a job for each node. ssh: through ClusterShell.")] = "slurm",
    partition: Annotated[str | None, typer.Option(help="Only with --engine slurm. Default: that of Slurm.")] = None,
    options: Annotated[
        str, typer.Option("--engine-options", help="Further options of srun ('--gres=xpu:8 --account=lab') or ssh ('-F file').")
    ] = "",
    timeout: Annotated[float, typer.Option(min=0.1, help="Minutes for the run of each node.")] = 30.0,
    xpulab: Annotated[
        str | None, typer.Option(help="The command on the nodes, for instance /opt/xpulab/.venv/bin/xpulab. Default: this one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new folder for bundles and comparison. Default: out/<date>.")] = None,
) -> None:
    """Run the notebooks on every node, one task a node, and say which nodes are red, unlike the others, or silent.

    Exit code 0: every node that was used is green, 1: one is not, 2: nothing could be started.
    """
    from xpulab.fleet.cluster import fleet_run
    from xpulab.fleet.cluster.engines import engine_named
    from xpulab.harness.plan import make_plans

    given = typer.main.get_command(app).commands["run"].make_context("run", list(arguments or ())).params  # type: ignore[attr-defined]
    make_plans(list(given["notebooks"] or ()), given["level"], list(given["checks"] or ()))  # what is wrong is said once, here
    through = engine_named(engine, partition, _words("--engine-options", options))
    on_nodes = python_module("xpulab") if xpulab is None else _words("--xpulab", xpulab)
    summary = fleet_run.run(through, nodes, arguments or (), timeout, on_nodes, chosen.folder(out), print)
    raise typer.Exit(0 if summary.is_green else 1 if summary.is_verdict else 2)


@command(fleet, hidden=True)
def task(
    run: Annotated[list[str] | None, typer.Argument(help="What follows `xpulab run` in the command of the run.")] = None,
    node: Annotated[str, typer.Option(help="The name of this node in the fleet.")] = "",
    limit: Annotated[float, typer.Option(help="Seconds for the run.")] = 1800.0,
) -> None:
    """What `xpulab fleet run` starts on each node; it ends when its standard input is closed."""
    from xpulab.fleet.cluster.task import DONE, end_with, run_task

    end_with(sys.stdin.fileno())
    ended = run_task(node, python_module("xpulab"), run or (), limit, lambda line: print(line, flush=True))
    raise typer.Exit(0 if ended.outcome == DONE else 1)


@command(fleet)
def links(
    nodes: Annotated[str, typer.Option(help="Which nodes of the job: node[1-3,7]. Default: all of them.")] = "",
    cards: Annotated[int, typer.Option(min=1, max=MOST_CARDS, help="Ranks of each node.")] = 1,
    limit: Annotated[float, typer.Option(min=1, help="Seconds of one trial: a hang is found after this long.")] = 120.0,
    options: Annotated[str, typer.Option("--engine-options", help="Further options of srun: '--gres=xpu:8'.")] = "",
    xpulab: Annotated[str | None, typer.Option(help="As for xpulab fleet run.")] = None,
) -> None:
    """In a job of Slurm: exchange a known tensor between all nodes, and name the smallest groups that do not work together.

    Exit code 0: all nodes work together, 1: they do not, 2: it was not started in a job.
    """
    from xpulab.fleet.cluster.links import Steps, addresses, smallest_red

    on_nodes = python_module("xpulab") if xpulab is None else _words("--xpulab", xpulab)
    found = addresses(nodes)
    steps = Steps(found, cards, limit, on_nodes, _words("--engine-options", options), lambda line: print(line, flush=True))
    red = smallest_red(tuple(found), steps)
    for group, why in red:
        print(f"RED: {','.join(group)}: {why}")
    print(f"{'RED' if red else 'green'}: {len(found)} nodes, {cards} ranks each")
    raise typer.Exit(1 if red else 0)


@command(fleet, hidden=True)
def exchange(master: str, nodes: int, cards: int, seconds: float) -> None:
    """What `xpulab fleet links` starts on each node."""
    from xpulab.fleet.cluster.exchange import task

    raise typer.Exit(task(master, nodes, cards, seconds))
