"""`xpulab exercise`: a fault of a chapter is injected, for the reader to find."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_


@command()
def exercise(
    chapter: Annotated[str | None, typer.Argument(help="A chapter: 3, 03_lora or lora. Without it all are listed.")] = None,
    answer: Annotated[bool, typer.Option("--answer", help="Say what is broken; run nothing.")] = False,
    out: Annotated[Path | None, typer.Option(help="A new folder for the executed notebook.")] = None,
) -> None:
    """Break one thing that a chapter relies on, and show the checks that turn red. Exit code 1 when none does."""
    from xpulab.faults import exercise as exercises

    if chapter is None:
        print(exercises.format_list())
        return
    asked = exercises.exercise_named(chapter)
    if answer:
        chosen.alone("--answer", out=out)
        print(exercises.format_answer(asked))
        return

    from xpulab.harness.fork_server import kernel_environment
    from xpulab.harness.run import prepare
    from xpulab.records.record import RED

    folder = chosen.folder(out)
    prepare(folder)
    with kernel_environment(asked.fault.device) as environment:
        verdict = exercises.run(asked, folder / "notebooks", environment)
    if verdict.no_verdict:
        raise InputError(N_("no verdict: {cause}", cause=verdict.no_verdict))
    print(exercises.format_task(asked, verdict))
    raise typer.Exit(0 if any(record.outcome in RED for record in verdict.records) else 1)
