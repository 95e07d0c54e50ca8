"""`xpulab shapes`: the operators of a user's own script against numpy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command
from xpulab.errors import InputError
from xpulab.messages import N_


@command(context_settings={"allow_interspersed_args": False})
def shapes(
    script: Annotated[
        Path | None, typer.Argument(help="The Python file that starts the training. Options go before it.", show_default=False)
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="The script's own arguments.")] = None,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    step: Annotated[int, typer.Option(min=1, help="The optimizer step that is recorded, with what leads to it.")] = 2,
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that script and comparison may take. Default: 1800.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder that keeps the report and what the script prints.")] = None,
    target: Annotated[
        str,
        typer.Option("--for", help="xpu: instead of comparing, predict which kernels of the step a P800 has. Needs no card."),
    ] = "",
    kernels: Annotated[
        Path | None, typer.Option(help="With --for: what --save-kernels wrote on a machine with a card.")
    ] = None,
    paddle_source: Annotated[
        Path | None, typer.Option(help="With --for: a checkout of Paddle's source, at the tag of a release.")
    ] = None,
    save_kernels: Annotated[
        Path | None, typer.Option(help="Only write the kernels of this Paddle, which must be built for XPU, to a new file.")
    ] = None,
) -> None:
    """Record the operators of one step of a training script, and compare each with numpy on this device.

    The script ends after this step. Exit code 1 when an operator, or its gradient, is wrong.
    """
    from xpulab.operators import command, prediction

    if save_kernels:
        prediction.save_kernels(save_kernels)
        return
    if script is None:
        raise InputError(N_("name the Python file that starts the training: xpulab shapes [OPTIONS] SCRIPT [ARGS]"))
    if target:
        source = prediction.source_of(target, kernels, paddle_source)
        request = command.Request(
            script, tuple(arguments or ()), chosen.device(device), step, timeout or command.TIMEOUT, "kernels"
        )
        predicted = prediction.predict(command.shapes(request, out), source)
        print(json.dumps(predicted, indent=2) if as_json else prediction.format_prediction(predicted))
        return
    if kernels or paddle_source:
        raise InputError(N_("--kernels and --paddle-source say what a P800 has: use them with --for xpu"))
    request = command.Request(script, tuple(arguments or ()), chosen.device(device), step, timeout or command.TIMEOUT)
    report = command.shapes(request, out)
    print(json.dumps(report, indent=2) if as_json else command.format_report(report))
    raise typer.Exit(0 if command.is_right(report) else 1)
