"""`xpulab fleet hosts`: the hosts of a cluster side by side, from what `xpulab doctor --host --json` said on each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command
from xpulab.cli.fleet import fleet


@command(fleet)
def hosts(
    reports: Annotated[
        list[Path], typer.Argument(help="What xpulab doctor --host --json printed on each host: files, or folders of them.")
    ],
    golden: Annotated[
        Path | None, typer.Option(help="The report of a host that is right. Default: what most hosts have.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A folder for passing_nodes.txt and failing_nodes.txt.")] = None,
) -> None:
    """Name the hosts that are wrong, and those that are not like most of them. Exit code 0: none, 1: some, 2: no report."""
    from xpulab.fleet.hosts import compare_hosts, format_hosts, write_nodes

    compared = compare_hosts(reports, golden)
    print(format_hosts(compared))
    if out is not None:
        _, failing = write_nodes(compared, out)
        print(f"\nto leave them out: srun --exclude={failing.resolve()}")
    raise typer.Exit(1 if compared.failing else 0)
