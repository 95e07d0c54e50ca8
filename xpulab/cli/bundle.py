"""`xpulab bundle`: everything that a run knows of its machine in one file, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def bundle(
    folder: Annotated[Path, typer.Argument(help="The folder of a run; with --list also the file of a bundle.")],
    out: Annotated[Path | None, typer.Option(help="The new file. Default: <node>-<name of the folder>.zip.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Only show what is in it; write no file.")] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="Leave executed notebooks and outputs of tools out: enough to compare many nodes.")
    ] = False,
    sign: Annotated[
        Path | None,
        typer.Option(help="An SSH key that signs it: a private one, or a public one that ssh-agent holds.", metavar="KEY"),
    ] = None,
) -> None:
    """Write one file with result, executed notebooks, diagnosis, outputs of the vendor's tools, versions and kernel messages.

    Secrets and names of users are removed. What is in it is listed first. It imports Paddle in another process, as xpulab
    doctor does. docs/evidence.md says more.
    """
    from xpulab.fleet import bundle as format
    from xpulab.fleet import signature
    from xpulab.fleet.sending import collect, format_list, format_written

    if show_list and folder.is_file():
        print(format_list(format.read(folder)[0]))
        return
    if out:
        format.refuse_existing(out)
    if sign:
        signature.sign(b"", sign)  # before anything is collected: whether the key can sign
    collected = collect(folder, format.SUMMARY if summary else format.EVERYTHING)
    print(format_list(collected.bundle))
    if show_list:
        return
    out = out or Path(f"{collected.bundle.node}-{folder.resolve().name}.zip")
    format.write(collected, out, sign)
    print(format_written(out))
