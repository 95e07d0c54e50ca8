"""`xpulab doctor`: what is installed, what is wrong, which command fixes it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from xpulab.cli import chosen
from xpulab.cli.app import command


@command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The diagnosis as JSON.")] = False,
    device: Annotated[str, typer.Option(help="As for xpulab run.")] = "auto",
    timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds that an import, or a computation on a card, may take. Default: 120.")
    ] = None,
    log: Annotated[
        str | None, typer.Option(help="What an error in this log means, - for standard input; nothing else is looked at.")
    ] = None,
) -> None:
    """Show what is installed, what is wrong, and which command fixes it. Exit code 1 when something is wrong.

    Paddle and PaddleNLP are imported in other processes, which also compute on every card. With --log the text of an error is
    read: of a training, of Docker, of a launcher or of a collective library. Exit code 1 then means that a cause is known.
    """
    from xpulab.doctor.detect import detect, require, require_known
    from xpulab.doctor.diagnosis import diagnose
    from xpulab.doctor.known_errors import read_log
    from xpulab.doctor.probe import TIMEOUT, probe
    from xpulab.doctor.remedies import remedy_on
    from xpulab.doctor.render import format_diagnosis, format_log

    if log is not None:
        chosen.alone("--log", timeout=timeout)
        require_known(device)
        read, place = read_log(log), detect().device if device == "auto" else device
        said = [{"line": line, "text": text, **asdict(row), "remedy": remedy_on(row, place)} for line, text, row in read.errors]
        print(json.dumps({"errors": said, "last": read.last}, indent=2) if as_json else format_log(read, place))
        raise typer.Exit(1 if said else 0)
    detection = detect()
    tried = detection.device if device == "auto" else device
    require(tried, detection)
    diagnosis = diagnose(device, detection=detection, probed=probe(tried, timeout or TIMEOUT))
    print(json.dumps(diagnosis.to_json(), indent=2) if as_json else format_diagnosis(diagnosis))
    raise typer.Exit(1 if diagnosis.outcome == "wrong" else 0)
