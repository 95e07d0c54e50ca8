"""`xpulab shapes`: the operators of a user's own script against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_
from xpulab.verdict import exit_code


@command(context_settings={"allow_interspersed_args": False})
def shapes(
    script: Annotated[
        str,
        typer.Argument(
            metavar="SCRIPT", help="The Python file that starts the training, or its command. Options go before it."
        ),
    ],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")] = None,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module, as of python -m.")] = False,
    eager: Annotated[bool, typer.Option("--eager", help="Functions of paddle.jit.to_static run operator by operator.")] = False,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    step: Annotated[int, typer.Option(min=1, help="The optimizer step that is recorded, with what leads to it.")] = 2,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that script and comparison may take. Default: 1800.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder that keeps the report as JSON, and what the script prints.")
    ] = None,
    target: Annotated[
        str,
        typer.Option("--for", help="xpu: instead of comparing, predict which kernels of the step a P800 has. Needs no card."),
    ] = "",
) -> None:
    """Record the operators of one step of a training script, and compare each with numpy on this device.

    The script ends after this step. Exit code 1 when an operator or its gradient is wrong, or too little was compared to know,
    2 when no step was recorded.
    """
    from xpulab.operators import command, prediction

    if target not in ("", "xpu"):
        raise InputError(
            N_("--for {target}: only xpu can be predicted; other devices have no public list of kernels", target=target)
        )
    request = command.Request(
        **command.started_by([script, *(arguments or ())], module),
        device=chosen.device(device),
        step=step,
        timeout=timeout or command.TIMEOUT,
        wants="kernels" if target else "operators",
        is_eager=eager,
    )
    report = command.shapes(request, out)
    print(prediction.format_prediction(report) if target else command.format_report(report))
    raise typer.Exit(0 if target else exit_code(report["verdict"]))
