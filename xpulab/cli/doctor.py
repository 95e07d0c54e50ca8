"""`xpulab doctor`: what is installed, what is wrong, which command fixes it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from xpulab.cli.app import command


@command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The diagnosis as JSON.")] = False,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that an import, or a computation on a card, may take. Default: 120.")
    ] = None,
) -> None:
    """Show what is installed, what is wrong, and which command fixes it. Exit code 1 when something is wrong.

    Paddle and PaddleNLP are imported in other processes, which also compute on every card.
    """
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.diagnosis import diagnose
    from xpulab.doctor.probe import TIMEOUT, probe
    from xpulab.doctor.render import format_diagnosis

    detection = detect()
    tried = detection.device if device == "auto" else device
    require(tried, detection)
    diagnosis = diagnose(device, detection=detection, probed=probe(tried, timeout or TIMEOUT))
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else format_diagnosis(diagnosis))
    raise typer.Exit(1 if diagnosis.outcome == "wrong" else 0)
