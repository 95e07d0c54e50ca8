"""`xpulab doctor`: what is installed, what is wrong, which command fixes it."""

from __future__ import annotations

import json
from pathlib import Path
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
    host: Annotated[
        bool,
        typer.Option(
            "--host",
            help="Look at the host instead: limits, shared memory, disk, processes on cards. No Paddle.",
        ),
    ] = False,
    checkpoints: Annotated[Path, typer.Option(help="With --host: the folder that checkpoints are written to.")] = Path("."),
    reason: Annotated[
        bool,
        typer.Option(
            "--reason", help="With --host: print one line, which is the text of a drain reason when something is wrong."
        ),
    ] = False,
) -> None:
    """Show what is installed, what is wrong, and which command fixes it. Exit code 1 when something is wrong.

    Paddle and PaddleNLP are imported in other processes, which also compute on every card.
    """
    from xpulab.doctor.render import format_diagnosis, format_host

    if host:
        from xpulab.doctor.host import HostRequest, examine, format_reason

        report = examine(HostRequest(checkpoints))
        text = format_reason(report) if reason else format_host(report)
        print(json.dumps(report.to_json(), indent=2) if as_json else text)
        raise typer.Exit(1 if report.outcome == "wrong" else 0)
    from xpulab.doctor.detect import detect, require
    from xpulab.doctor.diagnosis import diagnose
    from xpulab.doctor.probe import TIMEOUT, probe

    detection = detect()
    tried = detection.device if device == "auto" else device
    require(tried, detection)
    diagnosis = diagnose(device, detection=detection, probed=probe(tried, timeout or TIMEOUT))
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else format_diagnosis(diagnosis))
    raise typer.Exit(1 if diagnosis.outcome == "wrong" else 0)
