"""`xpulab fleet`: the same run on many nodes, and which of them are not like the others."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import app, command
from xpulab.devices import MOST_CARDS
from xpulab.errors import InputError
from xpulab.messages import N_, shown

fleet = typer.Typer(no_args_is_help=True, help="The same run on many nodes, their comparison, and jobs across nodes.")
app.add_typer(fleet, name="fleet")


def shell_words(option: str, text: str) -> list[str]:
    """The words of an option's value as a shell reads them. Raises InputError when a quotation mark is missing."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InputError(N_(f"{option} {text}: not what a shell reads: {error}")) from error


@command(fleet)
def run(
    nodes: Annotated[str, typer.Option(help="How many nodes, or which: node[1-3,7]; with Slurm also all.")],
    notebooks: Annotated[list[str] | None, typer.Argument(help="As for xpulab run.")] = None,
    engine: Annotated[
        str, typer.Option(help="slurm: a job for each node. ssh: through ClusterShell, without a scheduler.")
    ] = "slurm",
    partition: Annotated[str | None, typer.Option(help="Only with --engine slurm. Default: that of Slurm.")] = None,
    options: Annotated[
        str, typer.Option("--engine-options", help="Further options of srun ('--gres=xpu:8 --account=lab') or ssh ('-F file').")
    ] = "",
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    expect: Annotated[str | None, typer.Option(help="As for xpulab run: how many cards each node must have.")] = None,
    level: Annotated[str, typer.Option(help="smoke, quick or standard, as for xpulab run.")] = "smoke",
    cards: Annotated[int | None, typer.Option(min=1, max=MOST_CARDS, help="As for xpulab run.")] = None,
    checks: Annotated[list[str] | None, typer.Option("--check", help="As for xpulab run; may be given several times.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Minutes for the run of each node.")] = 30.0,
    wait: Annotated[float, typer.Option(min=0.1, help="Minutes that a task may wait for its node.")] = 10.0,
    retries: Annotated[int, typer.Option(min=0, help="How often a task that a node lost is started again.")] = 1,
    drain: Annotated[
        bool, typer.Option("--drain", help="Execute the drain commands, which otherwise are only printed.")
    ] = False,
    xpulab: Annotated[
        str | None, typer.Option(help="The command on the nodes, for instance /opt/xpulab/.venv/bin/xpulab. Default: this one.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A new folder for bundles and comparison, with Slurm on a shared disk. Default: out/<date>."),
    ] = None,
) -> None:
    """Run the notebooks on every node, one task a node, and say which nodes are red, unlike the others, or silent.

    Exit code 0: every node that was used is green, 1: one is not, 2: nothing could be started.
    """
    from rich.console import Console

    from xpulab.doctor.meant import expected_count
    from xpulab.fleet.cluster import fleet_run
    from xpulab.fleet.cluster.fleet_run import Asked
    from xpulab.fleet.cluster.submit import Deadlines
    from xpulab.harness.sections import LEVELS

    if level not in LEVELS:
        raise InputError(N_(f"--level {level}: not a level of a fleet run; choose {', '.join(LEVELS)}"))
    count = None if expect is None else expected_count(expect).count
    asked = Asked(tuple(notebooks or ()), device, level, cards, tuple(checks or ()), count)
    deadlines = Deadlines(timeout * 60, wait * 60, retries=retries)
    through = fleet_run.engine_named(engine, partition, shell_words("--engine-options", options))
    on_nodes = [sys.executable, "-m", "xpulab"] if xpulab is None else shell_words("--xpulab", xpulab)
    if drain and engine != "slurm":
        raise InputError(N_(f"--drain needs --engine slurm: {engine} cannot take a node out of service"))
    folder = chosen.folder(out)
    console = Console()
    ran = fleet_run.run(through, nodes, asked, deadlines, on_nodes, folder, console)
    console.print(ran.text, highlight=False, markup=False, soft_wrap=True)
    if drain and not ran.interrupted:
        for sentence in fleet_run.drain(ran.summary):
            console.print(shown(sentence), highlight=False, markup=False, soft_wrap=True)
    if ran.interrupted:
        raise KeyboardInterrupt
    raise typer.Exit(0 if ran.summary.is_green else 1)


@command(fleet)
def show(
    folder: Annotated[Path, typer.Argument(help="What `xpulab fleet run --out` wrote, or a folder with bundles, one a node.")],
) -> None:
    """Compare the bundles that lie in a folder, whoever made them. Exit code 0: all are green and alike, 1: they are not."""
    from rich.console import Console

    from xpulab.fleet.cluster import fleet_run

    compared = fleet_run.show(folder)
    Console().print(compared.text, highlight=False, markup=False, soft_wrap=True)
    raise typer.Exit(0 if compared.summary.is_green else 1)


@command(fleet, hidden=True)
def task(
    run: Annotated[list[str], typer.Argument(help="What follows `xpulab` in the command of the run.")],
    node: Annotated[str, typer.Option(help="The name of this node in the fleet.")],
    limit: Annotated[float, typer.Option(help="Seconds for the run.")],
    shared: Annotated[Path | None, typer.Option(help="The folder for the bundle. Default: standard output.")] = None,
    end_with_stdin: Annotated[bool, typer.Option("--end-with-stdin", help="End when standard input is closed.")] = False,
) -> None:
    """What `xpulab fleet run` starts on each node."""
    from xpulab.fleet.cluster.messages import format_message
    from xpulab.fleet.cluster.task import Task, end_with, run_task

    if end_with_stdin:
        end_with(sys.stdin.fileno())
    asked = Task(node, (sys.executable, "-m", "xpulab", *run), limit, shared)
    ended = run_task(
        asked, os.environ, lambda message: print(format_message(message), flush=True), lambda line: print(line, flush=True)
    )
    raise typer.Exit(0 if ended.outcome == "done" else 1)
