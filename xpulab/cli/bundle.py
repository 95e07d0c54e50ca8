"""`xpulab bundle`: everything that a run knows of its machine in one file, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command


@command()
def bundle(
    folder: Annotated[Path, typer.Argument(help="The folder of a run; with --list also the file of a bundle.")],
    out: Annotated[Path | None, typer.Option(help="The new file. Default: <node>-<name of the folder>.zip.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Only show what is in it; write no file.")] = False,
) -> None:
    """Write one file with result, executed notebooks, diagnosis, outputs of the vendor's tools, versions and kernel messages.

    Secrets and names of users are removed. What is in it is listed first. It imports Paddle in another process, as xpulab
    doctor does. docs/evidence.md says more.
    """
    from xpulab.fleet import bundle as bundles

    if show_list:
        chosen.alone("--list", out=out)
    if show_list and folder.is_file():
        print(bundles.format_list(bundles.read(folder)[0]))
        return
    if out:
        bundles.refuse_existing(out)
    made, contents = bundles.collect(folder)
    print(bundles.format_list(made))
    if show_list:
        return
    out = out or Path(f"{made.node}-{folder.resolve().name}.zip")
    bundles.write(made, contents, out)
    print(bundles.format_written(made, out))
