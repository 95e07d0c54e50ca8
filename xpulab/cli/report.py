"""`xpulab report`: one check as a report for the developers of Paddle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_


@command()
def report(
    check: Annotated[
        str | None, typer.Argument(help="The name of a check that failed, or that a known issue belongs to.")
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="The folder of a run: its device, and what the check measured, go into the report.")
    ] = None,
    device: Annotated[str, typer.Option(help="As for xpulab run; without --run.")] = "auto",
    cards: Annotated[int, typer.Option(min=1, help="How many cards the script may use; without --run.")] = 2,
    known: Annotated[bool, typer.Option("--known", help="Only list the known defects that the run in --run met.")] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the report. Default: report-<check>.")] = None,
) -> None:
    """Write what a check found as an issue for Paddle: a script that runs without xpulab, environment and values.

    The script is run once. Exit code 1 when it shows no difference on this machine. The text is in English and Chinese.
    """
    from xpulab.harness.report.text import format_known
    from xpulab.upstream.report import SCRIPT, TEXT, check_in, checks_in, write

    if known and run and not check:
        print(format_known(each for each in checks_in(run) if each["outcome"] == "known"))
        return
    if known or not check:
        raise InputError(N_("give the name of a check, or --known with --run and the folder of a run"))
    found = check_in(run, check) if run else None
    used, count = (found["device"], found["cards"]) if found else (chosen.device(device), cards)
    written = write(check, used, count, found, out or Path(f"report-{check}"))
    print(written.output)
    print(f"report: {written.folder / TEXT}, script: {written.folder / SCRIPT}")
    if not written.shown:
        print(f"on this machine the script shows no difference: read {written.folder / SCRIPT} before you send it")
    raise typer.Exit(0 if written.shown else 1)
